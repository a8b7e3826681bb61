package group

import (
	"fmt"
	"time"

	"varve/protocol"
)

func (m *Machine) transition(g *group, to State) {
	g.previous, g.state, g.stateMs = g.state, to, m.nowMs()
}

// rebalance begins a rebalance, or ends its first half if one is under way and nobody else has to be waited for.
func (m *Machine) rebalance(g *group, reason string) {
	if g.state == Preparing {
		m.completeIfJoined(g)
		return
	}
	m.prepare(g, reason)
}

// prepare makes all members join again. An empty group waits for more members first.
func (m *Machine) prepare(g *group, reason string) {
	if g.state == Completing {
		m.failSyncs(g, protocol.RebalanceInProgress)
	}
	m.syncsDone(g)
	initial := g.state == Empty
	m.transition(g, Preparing)
	m.emit(Changed{Group: g.id, State: Preparing, Generation: g.generation, Members: len(g.members), Reason: reason})
	switch {
	case initial:
		g.grown = false
		g.delay = m.conf.InitialDelay
		g.delayed = max(g.rebalanceTimeout()-g.delay, 0)
		m.armJoin(g, g.delay)
	case g.allJoined():
		m.complete(g)
	default:
		m.armJoin(g, g.rebalanceTimeout())
	}
}

func (m *Machine) armJoin(g *group, after time.Duration) {
	m.timers.set(timerKey{kind: timerJoin, group: g.id}, m.now.Add(max(after, 0)))
}

// joinOver ends the wait for members. During the initial delay, members that came extend it up to the rebalance timeout.
func (m *Machine) joinOver(g *group) {
	if g.state != Preparing {
		return
	}
	if g.previous == Empty && g.grown && g.delayed != 0 {
		g.grown = false
		waited := g.delay
		g.delay = min(m.conf.InitialDelay, g.delayed)
		g.delayed = max(g.delayed-waited, 0)
		m.armJoin(g, g.delay)
		return
	}
	m.complete(g)
}

// completeIfJoined ends the wait when all members have joined; the initial delay runs its course.
func (m *Machine) completeIfJoined(g *group) {
	if g.state == Preparing && g.previous != Empty && g.allJoined() {
		m.complete(g)
	}
}

// complete begins the next generation with those who joined. Static members that did not may still come back.
func (m *Machine) complete(g *group) {
	m.timers.cancel(timerKey{kind: timerJoin, group: g.id})
	for _, mem := range append([]*member(nil), g.members...) {
		if mem.join == nil && mem.instance == nil {
			m.dropMember(g, mem.id)
			m.emit(MemberGone{Group: g.id, Member: mem.id, Reason: "did not join in time"})
		}
	}
	if !g.electJoined() && len(g.members) > 0 {
		m.armJoin(g, max(g.rebalanceTimeout(), minJoinRetry))
		return
	}
	g.generation++
	clear(g.unsyncd)
	if len(g.members) == 0 {
		m.emptied(g)
		return
	}
	chosen := g.vote()
	g.protocol = &chosen
	g.readTopics()
	m.transition(g, Completing)
	m.emit(Changed{Group: g.id, State: Completing, Generation: g.generation, Members: len(g.members), Reason: "all joined"})
	for _, mem := range g.members {
		if mem.join != nil {
			m.answerJoin(g, mem, m.generationOf(g, mem, g.leader == mem.id))
		}
		m.armSession(g, mem.id, mem.session())
		mem.isNew = false
		g.unsyncd[mem.id] = struct{}{}
	}
	m.timers.set(timerKey{kind: timerSync, group: g.id}, m.now.Add(g.rebalanceTimeout()))
}

// emptied stores that nobody is left. If that fails, a restart finds the last members once more, until their sessions end.
func (m *Machine) emptied(g *group) {
	g.protocol, g.leader = nil, ""
	g.readTopics()
	m.transition(g, Empty)
	m.emit(Changed{Group: g.id, State: Empty, Generation: g.generation, Reason: "no members left"})
	m.write([]Record{groupRecord(g, nil)}, func(err protocol.ErrorCode) {
		if err != protocol.None {
			m.emit(StoreFailed{Group: g.id, Doing: "store that it is empty", Code: err})
		}
	})
}

// sessionOver removes a member, or a pending one, that was not heard of.
func (m *Machine) sessionOver(g *group, id string) {
	mem := g.byID[id]
	if mem == nil {
		g.remove(id)
		if g.state == Preparing && g.allJoined() {
			m.complete(g)
		}
		return
	}
	if mem.heard() {
		return
	}
	m.emit(MemberGone{Group: g.id, Member: id, Reason: "session timed out"})
	m.dropMember(g, id)
	switch {
	case g.state == Stable || g.state == Completing:
		m.prepare(g, "member "+id+" timed out")
	case g.state == Preparing && g.allJoined():
		m.complete(g)
	}
}

// dropMember takes a member or pending member out, and its session with it. Requests of its that wait are told that it is
// unknown, so that it joins anew if it is still there.
func (m *Machine) dropMember(g *group, id string) {
	if mem := g.byID[id]; mem != nil {
		m.failJoin(g, mem, protocol.UnknownMemberID)
		m.answerSync(mem, FailSync(protocol.UnknownMemberID))
	}
	g.remove(id)
	m.cancelSession(g, id)
}

// syncOver removes the members that joined and then did not sync.
func (m *Machine) syncOver(g *group) {
	if g.state != Completing && g.state != Stable || len(g.unsyncd) == 0 {
		return
	}
	late := 0
	for _, mem := range append([]*member(nil), g.members...) {
		if _, ok := g.unsyncd[mem.id]; ok {
			late++
			m.dropMember(g, mem.id)
			m.emit(MemberGone{Group: g.id, Member: mem.id, Reason: "did not sync in time"})
		}
	}
	m.prepare(g, fmt.Sprintf("%d members did not sync in time", late))
}

// failSyncs takes back what was assigned and answers the members that wait for it. Their sessions may have run out while
// they waited.
func (m *Machine) failSyncs(g *group, err protocol.ErrorCode) {
	for _, mem := range g.members {
		g.assign(mem, nil)
		if mem.sync != nil {
			m.answerSync(mem, FailSync(err))
			m.armSession(g, mem.id, mem.session())
		}
	}
}

// syncsDone stops waiting for members to sync.
func (m *Machine) syncsDone(g *group) {
	clear(g.unsyncd)
	m.timers.cancel(timerKey{kind: timerSync, group: g.id})
}
