import copy, pickle
class Thing:
    def __init__(self, v): self.v = v
    def __eq__(self, o): return self.v == o.v
print(pickle.loads(pickle.dumps(Thing(3))) == Thing(3), copy.deepcopy(Thing([1])).v)
