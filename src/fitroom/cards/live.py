"""The card in this machine, for those who want to measure on it."""

from fitroom.cards.catalogue import Card, find_card
from fitroom.cards.nvml import LiveGpu, live_gpus
from fitroom.errors import InputError


def card_in_this_machine(card: Card) -> LiveGpu:
    """The live card; raises InputError where there is none or it is another one."""
    gpus = live_gpus()
    if not gpus:
        raise InputError(
            "There is no NVIDIA GPU in this machine to measure on.", hint="leave --measure out to predict instead"
        )
    if find_card(gpus[0].name) != card:
        raise InputError(
            f"The card in this machine is a {gpus[0].name}. Received: {card.name}.",
            hint="leave --gpu out to measure on the card that is here, or --measure to predict for the other",
        )
    return gpus[0]
