"""A training as its views are told of it: the job, readings, the end of an epoch."""

GIB = 2**30
JOB = {
    "model": {"text": "xception"},
    "image_size": 299,
    "backend": "jax",
    "device": "NVIDIA H200",
    "recipe": {"batch_size": 256, "micro_batch": 64},
    "precision": {"policy": "mixed_bfloat16"},
    "epochs": 10,
}
LOGS = {"loss": 0.8781, "accuracy": 0.561, "val_loss": 0.9659, "val_accuracy": 0.5122}


def reading(**changed):
    return {
        "time": 1000.0,
        "epoch": 1,
        "batch": 25,
        "update": 125,
        "loss": 0.7945,
        "metrics": {"accuracy": 0.6027},
        "learning_rate": 0.00065,
        "pictures_per_second": 1280.0,
        "in_use_bytes": GIB,
        "peak_bytes": int(6.8 * GIB),
        "reserved_bytes": None,
        "limit_bytes": 8 * GIB,
        "host_bytes": int(2.1 * GIB),
        "micro_batch": 64,
        "epochs": 10,
        "batches": 100,
        "pictures_per_batch": 256,
    } | changed


END_OF_FIRST_EPOCH = reading(epoch=0, batch=100, update=100, time=1000.0)
