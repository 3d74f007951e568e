"""Trials in processes of their own: each starts with fresh memory, and one that dies is a row of the table.

`run.py` has the public function. `process.py` is a trial's process as the loop sees it, `child.py` what runs inside;
`room.py` says how many may run at once, `folder.py` keeps the rows on disk, `table.py` has the rows as values.
"""
