"""Every message between two ends, on every transport: (kind, slot, number, value), and a record where one is named.

Each handler of `sample.py`, `infer.py` and `param.py` names its arguments in this order. A kind fits into 16 bits; 0 is left to
the transports.
"""

from __future__ import annotations

# sample streams                             slot       number     value                          record
REQUEST = 1  #     producer -> consumer      ledger row -          1: no other consumer to ask    -
CANCEL = 2  #      producer -> consumer      -          -          -                              -
WAIT = 3  #        consumer -> producer      -          -          -                              -
CREDIT = 4  #      consumer -> producer      -          credit     min_version                    -
PUT = 5  #         producer -> consumer      slot       credit     -                              the slab
FREE = 6  #        consumer -> producer      slot       -          -                              -
RETURN = 7  #      producer -> consumer      -          credit     -                              -

# infer streams
ASK = 16  #        client -> server          group      ticket     min_version                    the rows
ANSWER = 17  #     server -> client          group      ticket     version                        the answer

# param streams
CHANGED = 24  #    publisher -> subscriber   -          -          -                              - (shared memory: look again)
POLL = 25  #       subscriber -> publisher   -          version+1  -                              - (send what is newer)
PARAMS = 26  #     publisher -> subscriber   -          -          version                        the parameters
