"""The names of all files in a run folder. Other modules use these constants and spell no name themselves.

Written by every training with a `run_dir`:

    run.json        what the run is: model, data, batch size, epochs, seed, recipe, versions; and its state
    plan.json       the plan that it carries out, if there is one
    history.json    the metrics of each epoch so far
    log.jsonl       events, one a line, each of a kind of `fitroom.events.EventKind`: out of memory, earlier_models,
                    batch statistics, device, devices, plan, jit, run folder, resuming, resumed, callbacks, interrupted,
                    failed, finished, checkpoint not written, checkpoint damaged, checkpoint missing, model damaged,
                    model not written, picture went bad, loss not finite, step measured
    checkpoints/    the last two
    model.keras     the finished model, which plain Keras loads
    lock            which process works in the folder

Written by `fitroom train` and its recorder as well:

    job.json        what was asked for
    estimate.json   the memory that was predicted for the training step
    skipped.jsonl   files of the data that could not be used, one a line
    readings.jsonl  loss, speed and memory, about once a second
    times.json      seconds spent on each part of the job
    head.keras      the model after the new head alone was trained
    results.json    metrics and predictions of the finished model
    report.html     the page made from all of these
    tensorboard/    event files, where they were asked for

Written by `fitroom compress` as well:

    pruned.keras    the model that fine-tuning starts from
    compress.json   accuracy, size and latency before and after
"""

RUN_FILE = "run.json"
PLAN_FILE = "plan.json"
HISTORY_FILE = "history.json"
LOG_FILE = "log.jsonl"
CHECKPOINTS = "checkpoints"
MODEL_FILE = "model.keras"
LOCK_FILE = "lock"

JOB_FILE = "job.json"
ESTIMATE_FILE = "estimate.json"
SKIPPED_FILE = "skipped.jsonl"
READINGS_FILE = "readings.jsonl"
TIMES_FILE = "times.json"
HEAD_FILE = "head.keras"
RESULTS_FILE = "results.json"
REPORT_FILE = "report.html"
TENSORBOARD = "tensorboard"
PRUNED_FILE = "pruned.keras"
COMPRESS_FILE = "compress.json"

CHECKPOINT_SUFFIX = ".npz"
DAMAGED_SUFFIX = ".damaged"
"""Put behind the name of a checkpoint that cannot be read."""

EVENT_FILES = f"{TENSORBOARD}/*/events.out.tfevents.*.fitroom"
"""A pattern for the event files of TensorBoard that fitroom wrote; a user's own lie beside them."""
