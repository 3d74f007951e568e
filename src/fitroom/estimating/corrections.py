"""Estimates corrected by steps that were measured, and the measured steps of `measure=True` kept."""

from dataclasses import replace

from fitroom.backends.places import place_of_estimates
from fitroom.memory.corrections import MeasuredStep, correct, correction_key, store_step
from fitroom.memory.estimate import Estimate


def with_corrections(estimate: Estimate) -> Estimate:
    """Return an estimate corrected by the measured steps of its model; one that is measured is kept for later ones.

    Estimates for several devices are left as they are.
    """
    if estimate.devices > 1:
        return estimate
    key = correction_key(estimate, place_of_estimates(estimate.backend, estimate.gpu))
    if estimate.method != "measured":
        return correct(estimate, key)
    if estimate.uncorrected_bytes:
        step = MeasuredStep(predicted_bytes=estimate.uncorrected_bytes, measured_bytes=estimate.peak_bytes)
        if store_step(key, step, model=estimate.model):
            return replace(estimate, notes=(*estimate.notes, "Later estimates and plans of this model here use that."))
    return estimate
