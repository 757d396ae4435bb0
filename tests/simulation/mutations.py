"""Deliberate bugs in the core, each a small change of its text: what the simulation must find."""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """``old`` occurs once in ``file``, and becomes ``new``."""

    name: str
    file: str
    old: str
    new: str


NODE, ORDERING, JOINS = "sequencing/node.py", "sequencing/ordering.py", "sequencing/joins.py"
LANES, DELIVERY = "sequencing/lanes.py", "sequencing/delivery.py"
CUT = "sequencing/cut.py"
CAUSAL_WAIT = "sequencing/causal_wait.py"
BESIDE = "sequencing/beside.py"
PUBLISHER, OUTBOX, SUBSCRIBER = "sequencing/publisher.py", "sequencing/outbox.py", "sequencing/subscriber.py"
GRANTS, SHADOWS = "sequencing/grants.py", "sequencing/shadows.py"
SESSION, FOLLOWED, KEYED = "sequencing/session.py", "sequencing/followed.py", "sequencing/keyed.py"
TOGETHER, HAD, STATES = "sequencing/together.py", "sequencing/had.py", "gamecast/client/states.py"
SETTLED = "sequencing/settled.py"
MANAGER, TRANSITION = "sequencing/manager.py", "sequencing/transition.py"
CHANGES, LEADER = "sequencing/changes.py", "sequencing/leader.py"
SOLE, LISTING, HOMES, RECORD = (
    "sequencing/sole.py",
    "sequencing/listing.py",
    "sequencing/homes.py",
    "sequencing/record.py",
)

MUTATIONS = (
    Mutation(
        "an atom is not checked",
        ORDERING,
        "if self._next[atom] < number]",
        "if self._next[atom] < number and atom % 2]",
    ),
    Mutation(
        "an atom's check is off by one",
        ORDERING,
        "else self._next[a] < n)",
        "else self._next[a] + 1 < n)",
    ),
    Mutation(
        "only the first atom of a stamp is checked",
        ORDERING,
        "        return [atom for atom, number in numbers.items() if self._next[atom] < number]",
        "        return [atom for atom, number in list(numbers.items())[:1] if self._next[atom] < number]",
    ),
    Mutation(
        "a frame that is ahead is handed out when nothing waits",
        ORDERING,
        "            if following[atom] < number:\n                return True\n",
        "            pass\n",
    ),
    Mutation("a delivered frame does not advance its atoms", ORDERING, "self._next[atom] = number + 1\n", "pass\n"),
    Mutation(
        "waiting streams are not woken",
        ORDERING,
        "        if self._waiting:\n            for atom",
        "        if False:\n            for atom",
    ),
    Mutation(
        "a view begins at the first marker, not at the last",
        JOINS,
        "self.begin = max(self.begin, number)",
        "self.begin = self.begin or number",
    ),
    Mutation(
        "a view forgets what was delivered before it began",
        ORDERING,
        "views[atom].show(stream.region, number)",
        "pass",
    ),
    Mutation(
        "a view does not wait for the other regions",
        ORDERING,
        "        if not view.unsettled:\n            self.joins.end",
        "        if True:\n            self.joins.end",
    ),
    Mutation(
        "a region that is being joined is handed out at once",
        ORDERING,
        "        if self.joins.regions and stream.region in self.joins.regions:\n            self.silent",
        "        if False:\n            self.silent",
    ),
    Mutation("quiet regions are not marked again", JOINS, "in view.unsettled - view.nudged if", "in () if"),
    Mutation(
        "who was marked along too early is not marked again",
        JOINS,
        "if view.along.get(region) is None}",
        "if region not in view.along}",
    ),
    Mutation(
        "who has shown a number can bring nothing below where the view begins",
        JOINS,
        "return self.shown.issuperset(range(last + 1, self.begin + 1))",
        "return True",
    ),
    Mutation(
        "the next number of an atom goes back to a marker's",
        ORDERING,
        "if number >= self._next[atom]:",
        "if True:",
    ),
    Mutation(
        "an ended region still holds views up",
        ORDERING,
        "stream.region)\n                self._settle_if_due(atom, view, work)\n            self._wake_waiting",
        "None)\n            self._wake_waiting",
    ),
    Mutation(
        "a jump that an ended region may settle is not looked at again",
        ORDERING,
        "            self._wake_waiting([atom], work)\n\n    def _renumber",
        "\n    def _renumber",
    ),
    Mutation(
        "an epoch begins before the ones before have ended",
        SUBSCRIBER,
        "if epoch.barrier and (received or epoch.held):",
        "if False:",
    ),
    Mutation(
        "an epoch waits for one TICK only",
        SUBSCRIBER,
        "FollowedEpoch(plan, delivery, barrier)",
        "FollowedEpoch(plan, delivery, set(sorted(regions)[:1]))",
    ),
    Mutation(
        "a region is joined before its epoch has begun",
        SUBSCRIBER,
        "epoch, 0, marker, marker)",
        "epoch, 0, marker)",
    ),
    Mutation("twins are not followed in the shadow", SHADOWS, "followed.update(atom.regions)", "pass"),
    Mutation(
        "a grant that is left over is taken for one's own",
        GRANTS,
        "if since <= self._heard and region in plan.paths]",
        "if region in self.granted]",
    ),
    Mutation(
        "a grant counts for the epoch before it",
        GRANTS,
        "{region: plan.epoch_of(region) for region in fresh}",
        "dict.fromkeys(fresh, 1)",
    ),
    Mutation(
        "a stream whose end is a TICK is joined",
        SUBSCRIBER,
        "is_over = newest is not None and parse_meta(newest.meta).kind == FrameKind.TICK",
        "is_over = False",
    ),
    Mutation(
        "a publisher's repeat is accepted again",
        NODE,
        "if before is not None and last and first + frame.count - 1 == last:",
        "if False:",
    ),
    Mutation(
        "superseded publishers are not fenced off",
        NODE,
        "elif frame.incarnation < before.incarnation:",
        "elif False:",
    ),
    Mutation(
        "a node takes a relay's word for what it has accepted",
        NODE,
        "accepted, ends = self.accepted_from.get(source, 0), _Ends()",
        "accepted, ends = frames[0].sequence - 1 if frames else 0, _Ends()",
    ),
    Mutation(
        "an ingress is closed without a TICK",
        NODE,
        '        self._pass_on([(step, StampedFrame(region, epoch, last, TICK_META, b"", b""))], ends)\n',
        "",
    ),
    Mutation(
        "a closed ingress goes on taking events",
        NODE,
        "        step.move(StepEvent.CLOSE)\n        self._pass_on",
        "        self._pass_on",
    ),
    Mutation(
        "a TICK is overtaken: the new epoch opens when prepared",
        NODE,
        "StepState.WAITING if step.region in closing else StepState.OPEN",
        "StepState.OPEN",
    ),
    Mutation(
        "a moved ingress does not learn what was accepted", NODE, "self.accepted_of[region, publisher] = seen", "pass"
    ),
    Mutation(
        "who is forgotten is taken for new",
        NODE,
        "if forgotten is not None and frame.incarnation <= forgotten.incarnation:",
        "if False:",
    ),
    Mutation(
        "what a node has forgotten is offered again though an answer was lost",
        PUBLISHER,
        "if answer.verdict is Verdict.FORGOTTEN and not any(each.is_uncertain for each in states):",
        "if answer.verdict is Verdict.FORGOTTEN:",
    ),
    Mutation(
        "preparing again opens ingresses again",
        NODE,
        "self.steps.setdefault((step.epoch, step.region), installed)",
        "self.steps[step.epoch, step.region] = installed",
    ),
    Mutation(
        "steps are forgotten before the old epoch has drained",
        TRANSITION,
        "[self._close, self._open, self._end, self._forget]",
        "[self._close, self._open, self._forget]",
    ),
    Mutation(
        "ingresses are closed before all nodes are prepared",
        TRANSITION,
        "[self._prepare, *sweep]\n        self._phases += [self._close, self._open,",
        "[self._close, *sweep]\n        self._phases += [self._prepare, self._open,",
    ),
    Mutation(
        "atoms that exist are taken to be enough",
        MANAGER,
        "if is_known or _are_ordered(plan, grown, moving, pairs):",
        "if True:",
    ),
    Mutation(
        "only the joined region begins a new epoch",
        MANAGER,
        " if not joined.isdisjoint(part)))",
        " if not joined.isdisjoint(part))) & joined",
    ),
    Mutation(
        "atoms' ids are used again",
        MANAGER,
        "planner(fresh_membership, plan.epoch + 1, record.next_atom)",
        "planner(fresh_membership, plan.epoch + 1, 1)",
    ),
    Mutation(
        "who left is forgotten within the epoch",
        SOLE,
        "return following, union(members, changes.joining), moving",
        "return following, union({n: frozenset(w.since) for n, w in interests.items()}, changes.joining), moving",
    ),
    Mutation(
        "a frame gets new numbers when it is sent again",
        OUTBOX,
        "replace(self.refused, epoch=self.epoch), None",
        "replace(self.refused, epoch=self.epoch, first=self.refused.first + 1), None",
    ),
    Mutation(
        "a connection's numbers are compared with those of the one before it",
        NODE,
        "last = before.last if before is not None and before.incarnation == frame.incarnation else 0",
        "last = before.last if before is not None else 0",
    ),
    Mutation(
        "regions go on in their epoch after a node on their path has lost something",
        MANAGER,
        "{region for plan in plans for region, path in plan.paths.items() if not lost.isdisjoint(path)}",
        "set()",
    ),
    Mutation(
        "links go on with their numbers after one of their nodes has lost something",
        "sequencing/plan.py",
        'return f"{node}#{self.runs[node]}" if node in self.runs else node',
        "return node",
    ),
    Mutation(
        "a broken path is drained and not sealed",
        TRANSITION,
        "            if old.lost:\n                closed",
        "            if False:\n                closed",
    ),
    Mutation(
        "a seal does not say how much is missing",
        TRANSITION,
        "(old.region, old.epoch, closed.tick if closed else 0)",
        "(old.region, old.epoch, 0)",
    ),
    Mutation(
        "what is sealed goes on",
        NODE,
        "if step is not None and step.state is not StepState.SEALED\n",
        "if step is not None\n",
    ),
    Mutation(
        "streams that ended at a lost node before it was lost are not sealed",
        TRANSITION,
        "            if self._lost(node):\n                sealing",
        "            if False:\n                sealing",
    ),
    Mutation(
        "what is missing at the end of an epoch is not announced",
        ORDERING,
        "        if first > expected:\n            out.append(",
        "        if first > expected and stream.region not in self._ended:\n            out.append(",
    ),
    Mutation(
        "a publisher must go on where a lost table ended",
        NODE,
        "if last and before is not None and before.epoch == frame.epoch and first > last + 1:",
        "if first > last + 1:",
    ),
    Mutation(
        "what was under way at a lost ingress is sent again",
        PUBLISHER,
        "                if plan.runs.get(node) != before.runs.get(node):\n                    self._abandon(node)\n",
        "                pass\n",
    ),
    Mutation(
        "the causal wait goes on for what is lost",
        CAUSAL_WAIT,
        "return self.passed(region, last) if accepted <= epoch else []",
        "return []",
    ),
    Mutation(
        "an epoch that was not left behind yet is forgotten when a node is lost",
        SOLE,
        "behind, abandoned, moving = (*record.behind, record.plan), record.abandoned",
        "behind, abandoned, moving = (record.plan,), record.abandoned",
    ),
    Mutation(
        "a region that ends before its marker comes is taken out",
        ORDERING,
        "        self._note_end(region)\n        self._take_up",
        "        return self.leave(region, out)\n        self._take_up",
    ),
    Mutation("the causal wait is left out", CAUSAL_WAIT, "return run <= self._runs[0][0]", "return True"),
    Mutation(
        "the causal wait ends when the ingress has answered",
        PUBLISHER,
        "        state.next = frame.first + frame.count\n",
        "        state.next = frame.first + frame.count\n        self.passed(frame.region, state.next)\n",
    ),
    Mutation(
        "a step does not mark what it numbers after another stream",
        NODE,
        "-self.ended_last if is_later else self.ended_last",
        "self.ended_last",
    ),
    Mutation(
        "a node has numbers for each region",
        NODE,
        """                stamp.insert(0, b"%d,%d" % (NODE, -self.ended_last if is_later else self.ended_last))
""",
        """                here = len(self.egress.get((frame.epoch, frame.region), ())) + 1
                stamp.insert(0, b"%d,%d" % (NODE, -here if is_later else here))
""",
    ),
    Mutation(
        "a node's number stays as it is",
        NODE,
        "            self.ended_last += 1\n",
        "            self.ended_last = 1\n",
    ),
    Mutation(
        "what is cut short hides nothing",
        LANES,
        "through += self._let_through(lane, self._cut(lane, whole))",
        "through += self._let_through(lane, inf)",
    ),
    Mutation("streams that were cut short are taken for whole", CUT, "if len(frames) < frames_max:", "if True:"),
    Mutation("a lane is delivered as it arrives", CUT, "    ahead.sort(key=itemgetter(0))\n", ""),
    Mutation(
        "a lane's heads do not wait for each other",
        ORDERING,
        "if is_numbered and stream.order[0] != stream.region:",
        "if False:",
    ),
    Mutation(
        "a lane goes on before the end of what joins it is found",
        SUBSCRIBER,
        "            delivery.found_end(region, newest, is_direct=is_direct, begins=begins)\n",
        "",
    ),
    Mutation(
        "what an atom orders is joined without a marker",
        JOINS,
        "if joining is None or joining.atoms:",
        "if joining is None:",
    ),
    Mutation(
        "what comes over a link is joined without a marker",
        SUBSCRIBER,
        "is_direct = len(path) == 1 and plan",
        "is_direct = plan",
    ),
    Mutation(
        "what is joined without a marker is handed out from one event later on",
        DELIVERY,
        "            self._lanes.skip(region, newest)\n",
        "            newest = newest._replace(last=newest.last + 1)\n            self._lanes.skip(region, newest)\n",
    ),
    Mutation(
        "a lane does not hear that one of its streams has moved on",
        LANES,
        "        lane.regions.discard(region)\n",
        "",
    ),
    Mutation(
        "what is held is replayed as if nothing had been left out",
        SUBSCRIBER,
        "out += epoch.delivery.receive(frames, whole)",
        "out += epoch.delivery.receive(frames)",
    ),
    Mutation(
        "what a read was woken with is taken for the next, marked or not",
        CUT,
        "if number < 0 and -number != last + 1:",
        "if False:",
    ),
    Mutation(
        "what a look without frames tells is forgotten while an epoch waits",
        FOLLOWED,
        "                if was_whole == whole:\n",
        "                if True:\n",
    ),
    Mutation(
        "what is ahead counts although something before it is about to be looked at",
        ORDERING,
        "        self._is_taking = True\n",
        "",
    ),
    Mutation(
        "what moves at once to two epochs is not one cut",
        SUBSCRIBER,
        "FollowedEpoch(plan, delivery, barrier)",
        "FollowedEpoch(plan, delivery, set(regions))",
    ),
    Mutation(
        "a publisher does not learn what its connection delivered",
        SESSION,
        "            publisher.passed(region, number)\n",
        "            pass\n",
    ),
    Mutation(
        "a publisher does not learn what its connection missed",
        SESSION,
        "            publisher.gone(region, epoch, last)\n",
        "            pass\n",
    ),
    Mutation(
        "a publisher does not learn that an epoch has ended",
        SESSION,
        "            publisher.ended(region, epoch)\n",
        "            pass\n",
    ),
    Mutation(
        "markers are not published",
        SESSION,
        "            publisher.mark(region, body, None)\n        reads_changed",
        "            pass\n        reads_changed",
    ),
    Mutation(
        "a marker that failed is not published again",
        SESSION,
        "            again.append((each.region, each.payloads[0]))\n",
        "            pass\n",
    ),
    Mutation(
        "after a plan, the host does not learn of other streams",
        SESSION,
        "reads_changed, self._generation = self._generation != subscriber.generation, subscriber.generation",
        "reads_changed, self._generation = False, subscriber.generation",
    ),
    Mutation(
        "the first plan that lists regions does not count who joined in place",
        LISTING,
        "        members=members,\n",
        "",
    ),
    Mutation(
        "the leader does not know what was granted in place",
        LISTING,
        "        heard=dict(interests),\n",
        "",
    ),
    Mutation(
        "the first plan that lists regions leaves out where something was published",
        SOLE,
        "    first = listed(record, interests, begun)\n",
        "    first = listed(record, interests, frozenset())\n",
    ),
    Mutation(
        "who has what moves is granted more beside that",
        BESIDE,
        "busy.isdisjoint(joins) and busy.isdisjoint(members.get(name, ()))",
        "True",
    ),
    Mutation(
        "what is not ordered is granted beside a plan",
        BESIDE,
        " and can_follow_all(with_all, grown[name])",
        "",
    ),
    Mutation(
        "a plan goes on top of grants that tie what it moves to something else",
        BESIDE,
        " or any(not moved.isdisjoint(now.members[name]) for name in granted)",
        "",
    ),
    Mutation(
        "who asks while a proposed plan is decided on counts as heard",
        MANAGER,
        "    return replace(moved, heard=record.heard)\n",
        "    return replace(moved, heard=interests)\n",
    ),
    Mutation(
        "a proposed plan counts what was heard, whose regions no new leader knows",
        MANAGER,
        "        for name, now in interests.items()\n    }\n    changes = Changes({}, ",
        "        for name, now in record.heard.items()\n    }\n    changes = Changes({}, ",
    ),
    Mutation(
        "a plan undoes what was granted while it was made",
        BESIDE,
        "members=_merged(base.members, following.members, now.members),",
        "members=following.members,",
    ),
    Mutation(
        "a plan undoes the places that were given while it was made",
        BESIDE,
        "plan=_on_top(base.plan, following.plan, now.plan),",
        "plan=following.plan,",
    ),
    Mutation(
        "nodes do not prepare what begins beside a plan",
        BESIDE,
        "new = sorted(regions_between(before.plan, plan))",
        "new = []",
    ),
    Mutation(
        "a request that was held up counts",
        RECORD,
        "if (self.incarnation, self.said) < (before.incarnation, before.said):",
        "if False:",
    ),
    Mutation(
        "a request drops what was wanted before",
        RECORD,
        "                since.update(before.since)\n",
        "                pass\n",
    ),
    Mutation(
        "what a connection before had is wanted still",
        RECORD,
        "if before.incarnation == self.incarnation and not self.whole:",
        "if not self.whole:",
    ),
    Mutation(
        "an empty stream of any region is joined without a marker",
        SUBSCRIBER,
        "self._note_unborn(region for region in fresh if region not in before.paths)",
        "self._note_unborn(fresh)",
    ),
    Mutation(
        "a region that has moved is joined at an empty stream without a marker",
        SUBSCRIBER,
        "            self._regions.move(region, epoch)\n            self._lives.all[region].is_unborn = False\n",
        "            self._regions.move(region, epoch)\n",
    ),
    Mutation(
        "a region goes home to where one of the others ends",
        HOMES,
        "if len(ends) == 1 and _may_have_more",
        "if ends and _may_have_more",
    ),
    Mutation(
        "a region goes home whatever the epoch",
        HOMES,
        "plan.epoch_of(region)) for region in members",
        "plan.epoch) for region in members",
    ),
    Mutation(
        "a region begins where it may have been refused",
        HOMES,
        "home.epoch <= plan.first_epoch < plan.epoch",
        "False",
    ),
    Mutation(
        "regions that are joined do not begin before the node begins no more",
        SOLE,
        "tuple(plan.steps(record.plan.sole))",
        "()",
    ),
    Mutation(
        "the first plan that lists regions begins no epoch",
        SOLE,
        "epoch=first.plan.epoch + 1, version=1",
        "epoch=first.plan.epoch, version=2",
    ),
    Mutation(
        "a node begins regions of any epoch",
        NODE,
        "if step is None and self.any_epoch and frame.epoch == self.any_epoch:",
        "if step is None and self.any_epoch:",
    ),
    Mutation(
        "a node begins regions for ever",
        NODE,
        "        self.any_epoch = 0\n\n    def begun",
        "        pass\n\n    def begun",
    ),
    Mutation(
        "a publisher does not ask for a place again for what was refused",
        PUBLISHER,
        "regions[region].frames or regions[region].taken is not None]",
        "regions[region].frames]",
    ),
    Mutation(
        "a request that was answered is not forgotten, and its grant is not taken",
        GRANTS,
        "            if since and self._asked.get(region) == since:\n",
        "            if False:\n",
    ),
    Mutation(
        "a condition is not compared with the head",
        NODE,
        "(head := heads[condition.part].head(condition.key)) != condition.position",
        "(head := heads[condition.part].head(condition.key)) is Ellipsis",
    ),
    Mutation("a condition is looked up in the first region", NODE, "heads[condition.part].head", "heads[0].head"),
    Mutation(
        "a joint event is accepted where it can be",
        NODE,
        "if isinstance(look, Answer) and look.verdict is not Verdict.SEEN:",
        "if isinstance(look, Answer) and look.verdict is not Verdict.SEEN and len(looks) == 1:",
    ),
    Mutation(
        "the parts of a joint event go one by one",
        TOGETHER,
        "or (each.taken is None",
        "or each.name or (each.taken is None",
    ),
    Mutation(
        "a joint event leaves the numbers of its further regions",
        PUBLISHER,
        "each.next = part.first + frame.count",
        "pass",
    ),
    Mutation(
        "a joint event does not wait for a plan with its set",
        PUBLISHER,
        "if len(plan.nodes) > 1 and set_name(regions) not in plan.joint:",
        "if False:",
    ),
    Mutation(
        "the copies of a joint event pass links one by one",
        NODE,
        """        for target, [first, *others] in leaving.items():
""",
        """        for target, first, others in [(to, each, ()) for to, copies in leaving.items() for each in copies]:
""",
    ),
    Mutation(
        "a joint event that is refused on its way is dropped",
        NODE,
        'meta, body = void(meta), b""',
        'meta, body, copies, late = void(meta), b"", [], []',
    ),
    Mutation(
        "a joint event that is refused on its way goes on",
        NODE,
        'meta, body = void(meta), b""',
        "pass",
    ),
    Mutation(
        "what a joint event says of keys counts before it is decided",
        NODE,
        "if frame.extras.names and is_undecided:",
        "if False:",
    ),
    Mutation(
        "a condition on a key that is not decided is decided",
        NODE,
        "if self.pending.is_pending(parts[condition.part].region, condition.key):",
        "if False:",
    ),
    Mutation(
        "keys of a joint event that was refused on its way are set",
        NODE,
        "source, Judgement.NO if refused else Judgement.OK",
        "source, Judgement.OK",
    ),
    Mutation(
        "a joint event that was refused on its way leaves its numbers",
        TOGETHER,
        """        if last:
            each.next = part.first + frame.count
""",
        "",
    ),
    Mutation(
        "an ingress closes while keys there are not decided",
        "sequencing/transition.py",
        "if are_awaited(node.undecided(), self.regions):",
        "if False:",
    ),
    Mutation(
        "keys that a lost node was to decide wait for ever",
        "sequencing/pending.py",
        "return [of for of, each in passing.items() if each.epoch < epoch and not lost.isdisjoint(each.way)]",
        "return []",
    ),
    Mutation(
        "joint regions need not meet",
        "sequencing/conditions.py",
        "bool(way_of(plan.paths, regions)) and not any(",
        "bool(way_of(plan.paths, regions)) or not any(",
    ),
    Mutation(
        "joint sets are left out of components",
        MANAGER,
        "membership = Membership.of(observers(grown, pairs, plan.ordering), plan.paths, plan.joint)",
        "membership = Membership.of(observers(grown, pairs, plan.ordering), plan.paths)",
    ),
    Mutation(
        "a joint set is granted beside a plan that moves one of its regions",
        BESIDE,
        ".union(*map(regions_in, now.plan.joint - base.plan.joint))",
        "",
    ),
    Mutation(
        "a joint set is granted while one of its regions moves",
        BESIDE,
        "if busy.isdisjoint(regions_in(name)))",
        ")",
    ),
    Mutation(
        "what becomes of a joint event is told to its first region",
        PUBLISHER,
        "            for each in states[1:]:\n                each.settle()\n",
        "",
    ),
    Mutation(
        "a joint event whose regions have parted is offered on",
        PUBLISHER,
        "if len(states) > 1 and self._have_parted(states):",
        "if len(states) > 9 and self._have_parted(states):",
    ),
    Mutation(
        "what is in a state comes again",
        STATES,
        "        if last < position:\n            return\n",
        "        if last < position:\n            yield item\n            return\n",
    ),
    Mutation(
        "a state comes before what is in it has passed others",
        STATES,
        "[*self._tell(coming)] if coming.shows_place and not left else []",
        "[*self._tell(coming)] if not left else []",
    ),
    Mutation(
        "nothing is held back until the answer",
        STATES,
        "if self._held or region in self.calls or not",
        "if self._held and region in self.calls or not",
    ),
    Mutation(
        "values do not go to the next ingress",
        NODE,
        "Heads(heads.known, heads.lost, epoch, heads.values)",
        "Heads(heads.known, heads.lost, epoch)",
    ),
    Mutation(
        "a deleted key keeps its value",
        KEYED,
        "                self.known.pop(key, None)\n                self.values.pop(key, None)\n",
        "                pass\n",
    ),
    Mutation("every copy of a joint event is handed out", HAD, "if region != by)", "if region == by)"),
    Mutation(
        "what was had in an earlier stay comes again",
        HAD,
        "            self._keep(region, begin, self._passed.get(region, begin))\n",
        "            pass\n",
    ),
    Mutation(
        "the event after a gap was had",
        HAD,
        "        self._begins[region] = upto\n",
        "        self._begins[region] = 0, 0\n",
    ),
    Mutation("the head of a key is the first event of its frame", KEYED, "epoch, first + place", "epoch, first"),
    Mutation("a key stays set when it is deleted", KEYED, "            if deletes:\n", "            if False:\n"),
    Mutation("heads do not go to the next ingress", TRANSITION, "return closed.heads", "return None"),
    Mutation(
        "an ingress that was never open tells the heads",
        TRANSITION,
        "closed.tick > 1 or begun_here or old is olds[0]",
        "closed.tick",
    ),
    Mutation(
        "heads that are lost count as none",
        TRANSITION,
        "return Heads(lost=self.plan.epoch_of(region))",
        "return None",
    ),
    Mutation(
        "an ingress goes on with heads of an earlier time", NODE, "self.heads.pop(region, None)  # of", "pass  # of"
    ),
    Mutation(
        "a refusal after a lost answer is taken for certain, whatever the condition",
        OUTBOX,
        "never_holds = not any(each.may_hold_again for each in self.taken.conditions)",
        "never_holds = True",
    ),
    Mutation(
        "a refusal after a reset is taken for certain",
        OUTBOX,
        "is_settled = self.fate is Fate.UNCERTAIN and isinstance",
        "is_settled = isinstance",
    ),
    Mutation(
        "an event with conditions shares its frame",
        PUBLISHER,
        "        if conditions and state.frames:\n            state.frames[-1].room = 0\n",
        "",
    ),
    Mutation(
        "a stream at a node that was given up is waited for",
        SUBSCRIBER,
        "        if plan.given_up:\n",
        "        if False:\n",
    ),
    Mutation(
        "the end of one node's streams counts as the end of what others bring",
        SUBSCRIBER,
        "self._receive_all(read, whole) if read else out",
        "self._receive_all(read, None) if read else out",
    ),
    Mutation(
        "a node that was given up is waited for in the transition",
        TRANSITION,
        "[task for task in phase() if task.node not in self.plan.given_up]",
        "phase()",
    ),
    Mutation(
        "a node that was given up is back in the run that it was in",
        CHANGES,
        "if run == was_in or not was_in:",
        "if False:",
    ),
    Mutation(
        "regions go to a node that was given up",
        CHANGES,
        "if name in runs and name not in out}",
        "if name in runs}",
    ),
    Mutation(
        "what was prepared and never announced keeps out the plan that it was to follow",
        NODE,
        "        if epoch < self.epoch:\n            return False\n        self.epoch, self.version = max(",
        "        if (epoch, version) < (self.epoch, self.version):\n            return False\n"
        "        self.epoch, self.version = max(",
    ),
    Mutation(
        "a plan is announced before all nodes know it",
        LEADER,
        "self._advance(move, lambda: move.transition.prepared)",
        "self._advance(move, lambda: True)",
    ),
    Mutation(
        "joins of regions that move are granted beside that",
        LEADER,
        "granted = yield from self._granted_beside(seen, move.record, busy=busy)",
        "granted = yield from self._granted_beside(seen, move.record, busy=frozenset())",
    ),
    Mutation(
        "a grant beside a transition is forgotten when that ends",
        LEADER,
        "            move.record = granted\n",
        "            pass\n",
    ),
    Mutation(
        "what was granted while a plan was made is not in it",
        LEADER,
        "following = self._beside.rebased(record, following, now)",
        "pass",
    ),
    Mutation(
        "joins that a plan is made for are granted beside it",
        LEADER,
        "latest, now, busy=busy, apart_from=asking.keys())",
        "latest, now, busy=frozenset())",
    ),
    Mutation(
        "a region is granted whose node has not prepared it",
        LEADER,
        "return following if all(answer is True for answer in answers) else None",
        "return following",
    ),
    Mutation(
        "what takes nodes to prepare is settled at once",
        LEADER,
        "        if Transition(following).finished:",
        "        if True:",
    ),
    Mutation(
        "a transition that is not finished is settled",
        LEADER,
        "if not (yield from self._advance(move, lambda: False)) or not move.transition.finished:",
        "if not (yield from self._advance(move, lambda: True)):",
    ),
    Mutation(
        "a leader does not notice that a node has lost something",
        LEADER,
        "name: run for name, run in runs.items() if name in named or",
        "name: run for name, run in runs.items() if",
    ),
    Mutation(
        "a leader does not notice who asks",
        LEADER,
        "        self._unheard |= seen.interests.keys() if touched is None else touched\n",
        "",
    ),
    Mutation(
        "a node that is silent is awaited for ever",
        LEADER,
        "        losing |= silent\n",
        "",
    ),
    Mutation(
        "the regions of a node that had all are not listed",
        LEADER,
        "        interests = yield BeginToPlan()\n        if interests is None:",
        "        interests = yield BeginToPlan()\n        if interests is not None:",
    ),
    Mutation(
        "the short way takes a frame that is not the next",
        SETTLED,
        "if last != expected.next or",
        "if last < expected.next or",
    ),
    Mutation(
        "an event is sent at once before those that wait in its region",
        PUBLISHER,
        "state.fate is not Fate.NONE or state.frames or self._wait is not None:\n            return None\n        node",
        "state.fate is not Fate.NONE or self._wait is not None:\n            return None\n        node",
    ),
    Mutation(
        "an event is sent at once where a frame of its region has no answer",
        PUBLISHER,
        "state.node is None or state.fate is not Fate.NONE or",
        "state.node is None or",
    ),
    Mutation(
        "an event is sent at once beside a request that is under way",
        PUBLISHER,
        "if node in self._in_flight or self._ready.get(node) or region in self.stale",
        "if self._ready.get(node) or region in self.stale",
    ),
    Mutation(
        "an event is sent at once to a region that needs a new incarnation",
        PUBLISHER,
        " or region in self.stale or region in self._doubtful:\n            return None\n        if not may_go",
        " or region in self.stale:\n            return None\n        if not may_go",
    ),
    Mutation(
        "whatever a lone frame is answered, it counts as accepted",
        PUBLISHER,
        "if len(frames) != 1 or answer.verdict is not Verdict.OK or",
        "if len(frames) != 1 or",
    ),
    Mutation(
        "the next number of a region is not counted on when a lone frame is accepted",
        PUBLISHER,
        "        state.next = frame.first + events\n        state.accepted = epoch, last\n",
        "        state.accepted = epoch, last\n",
    ),
    Mutation("the short way goes on after what ended it", SETTLED, "track.turn != turn or ", ""),
    Mutation("the short way goes on beside other streams", SETTLED, "track.whole is not whole or ", ""),
    Mutation("the short way takes more events than one", SETTLED, " or frame.meta[:4] != _LONE", ""),
    Mutation("the short way takes numbers of atoms for the node's", SETTLED, "not stamp[2:].isdigit()", "False"),
    Mutation(
        "the short way does not move what is delivered next",
        SETTLED,
        "        expected.next = last + 1\n",
        "",
    ),
    Mutation(
        "the short way takes own events",
        SETTLED,
        "name == self._own_name or ",
        "",
    ),
    Mutation(
        "the short way is gone although atoms bind",
        ORDERING,
        "waits = self.queued or self._next or joins.regions or joins.views",
        "waits = self.queued or joins.regions or joins.views",
    ),
    Mutation(
        "the short way is gone beside frames that wait",
        LANES,
        "is_next = not lane.ahead and not lane.fresh and whole is lane.whole and whole is not None",
        "is_next = True",
    ),
)
