"""What Grappler's inlining does to the names and the order of a step's operations, undone.

When a step runs for real, its functions and loops are inlined before Grappler sees them. Where Grappler does it, it
lets each function wait for all its inputs, and passes each input of the step through a node of its own. What runs when
is another order then: the condition of a loop, for one, would wait for all of the round before.
"""

from typing import Any

_WAITING = "/input_control_node/"
_BODY_BEGINS = "/loop_body_control/"


def without_strictness(graph_def: Any, call: str) -> Any:
    """The same graph, with functions and loops that wait for what TensorFlow would have them wait for.

    `call` is the node that called the step: what was inlined in its place loses its name.
    """
    merges = {node.name for node in graph_def.node if node.op == "Merge"}
    waits_for = {
        node.name: _lenient([each[1:] for each in node.input], merges)
        for node in graph_def.node
        if node.op == "NoOp" and _WAITING in node.name
    }
    needless = {f"^{name}" for name, others in waits_for.items() if not others}
    passed_on = {node.name: node.input[0] for node in graph_def.node if node.name.startswith(f"Func/{call}/input/")}
    lenient = type(graph_def)(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        if f"^{node.name}" in needless or node.name in passed_on:
            continue
        kept = lenient.node.add()
        kept.CopyFrom(node)
        kept.name = node.name.replace(f"{call}/", "", 1)
        given = [f"^{name}" for name in waits_for[node.name]] if node.name in waits_for else node.input
        del kept.input[:]
        sources = [_source(each, passed_on) for each in given if each not in needless]
        kept.input.extend(source.replace(f"{call}/", "", 1) for source in sources)
    return lenient


def _lenient(others: list[str], merges: set[str]) -> list[str]:
    """What a function waits for: the body of a loop for its begin, a condition for the loop's counter, others nothing.

    Constants have to wait for something of the loop that they are in.
    """
    begins = [name for name in others if _BODY_BEGINS in name]
    around = [name for name in others if name in merges]
    return begins or sorted(around, key=lambda name: int(name.rpartition("_")[2]))[:1]


def _source(given: str, passed_on: dict[str, str]) -> str:
    mark = "^" if given.startswith("^") else ""
    source = passed_on.get(given[len(mark) :], given[len(mark) :])
    return f"^{source.partition(':')[0]}" if mark else source
