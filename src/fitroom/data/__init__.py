"""Folders of pictures to batches: `fitroom.data.images("flowers/").train` is what `fitroom.fit` takes."""

from fitroom.data.augment import Augment as Augment
from fitroom.data.images import images as images
from fitroom.data.pictures import Pictures as Pictures
from fitroom.data.single import read_picture as read_picture
from fitroom.data.single import thumbnail as thumbnail
from fitroom.data.skipped import Skipped as Skipped
