"""Parts of TensorFlow that an estimate leaves out are there for whoever asks."""

import json

from processes import run_python

ASKING = """
import json, sys, typing
from fitroom.backends.light_import import import_keras_lightly
import_keras_lightly("tensorflow")
import keras, tensorflow as tf
left_out = [name for name in ("compat.v1", "feature_column", "test") if f"tensorflow._api.v2.{name}" not in sys.modules]
column = tf.feature_column.numeric_column("width")
from tensorflow.compat.v1 import placeholder
used = [column.name, placeholder.__name__, tf.compat.v1.Session.__name__, tf.test.is_built_with_cuda()]
print(json.dumps([left_out, *used, "compile" in vars(typing)]))
"""


def test_what_an_estimate_leaves_out_is_imported_when_it_is_used(tmp_path):
    found = json.loads(run_python(["-c", ASKING], backend="tensorflow", keras_home=tmp_path).splitlines()[-1])
    assert found == [["compat.v1", "feature_column", "test"], "width", "placeholder", "Session", False, False]
