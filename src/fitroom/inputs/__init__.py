"""The data that `model.fit` takes, as sources of batches on the host."""

from fitroom.inputs.arrays import split_validation as split_validation
from fitroom.inputs.choose import orders_batches as orders_batches
from fitroom.inputs.choose import source_of as source_of
from fitroom.inputs.contract import Source as Source
from fitroom.inputs.host import unpack as unpack
