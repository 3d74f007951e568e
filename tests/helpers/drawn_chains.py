"""Random chains of calls, as the search for segments takes them."""

import numpy as np

from fitroom.remat.call_costs import BackwardNeeds
from fitroom.remat.chain import Chain

NUM_CALLS = 9


def drawn_chain(seed, *, branching):
    """Calls that each make one tensor, used by the next and, in a branching one, by some later call too."""
    random = np.random.default_rng(seed)
    made = np.arange(-1, NUM_CALLS)
    users = [{number + 1} for number in range(NUM_CALLS - 1)] + [{NUM_CALLS}]
    for number in range(NUM_CALLS - 2):
        if branching and random.random() < 0.4:
            users[number].add(int(random.integers(number + 2, NUM_CALLS)))
    needs = [
        BackwardNeeds(inputs=bool(random.random() < 0.6), outputs=bool(random.random() < 0.3)) for _ in range(NUM_CALLS)
    ]
    sizes = np.concatenate([[0], random.integers(1, 50, NUM_CALLS)])
    needed = [0]
    for number in range(NUM_CALLS):
        by_users = any(user < NUM_CALLS and needs[user].inputs for user in users[number])
        needed.append(int(sizes[number + 1]) if needs[number].outputs or by_users else 0)
    operations = random.integers(1, 100, NUM_CALLS)
    return Chain(
        made=made,
        last_used=np.array([0, *(max(each) for each in users)]),
        tensor_bytes=sizes,
        needed_bytes=np.array(needed),
        extra_bytes=random.integers(0, 5, NUM_CALLS),
        made_bytes=sizes[1:],
        operations=operations,
        efforts=operations,
        users=tuple(tuple(sorted(user for user in each if user < NUM_CALLS)) for each in users),
        needs=tuple(needs),
    )
