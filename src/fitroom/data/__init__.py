"""Folders of images as batches: `fitroom.data.images("flowers/").train` can be passed to `fitroom.fit`."""

from fitroom.data.augment import Augment as Augment
from fitroom.data.files import Skipped as Skipped
from fitroom.data.images import images as images
from fitroom.data.images import read_picture as read_picture
from fitroom.data.images import thumbnail as thumbnail
from fitroom.data.pictures import Pictures as Pictures
