"""Everything that `model.fit` takes, as a source of batches on the host."""

from fitroom.train.sources.choose import orders_batches as orders_batches
from fitroom.train.sources.choose import source_of as source_of
from fitroom.train.sources.contract import Source as Source
from fitroom.train.sources.host import unpack as unpack
from fitroom.train.sources.validation import split_validation as split_validation
