"""Smaller models: pruning, factorised convolutions, adapters, advice and export."""

from fitroom.lean.adapting import adapt as adapt
from fitroom.lean.adapting import merge as merge
from fitroom.lean.changes_made import Changes as Changes
from fitroom.lean.changes_made import changes as changes
from fitroom.lean.export.export import export_model as export_model
from fitroom.lean.pruning import prune as prune
from fitroom.lean.schedule import PolynomialSchedule as PolynomialSchedule
from fitroom.lean.separating import separable as separable
