package metastore

import (
	"slices"

	"varve/metastore/metapb"
	"varve/protocol"
)

// maxDirs and maxEndpoints bound one registration.
const (
	maxDirs      = 256
	maxEndpoints = 64
)

func (t *tx) bootstrap(c *metapb.Bootstrap) (Result, error) {
	if c.GetClusterId() == "" || c.GetFeatureLevel() == 0 {
		return Result{}, malformed("bootstrap without cluster id or feature level")
	}
	if t.img.cluster.ID != "" {
		return Result{}, nil
	}
	if c.FeatureLevel > FeatureLevel {
		return Result{}, malformed("bootstrap at feature level %d", c.FeatureLevel)
	}
	t.img.cluster = cluster{ID: c.ClusterId, FeatureLevel: c.FeatureLevel, Journal: c.Journal}
	return Result{}, nil
}

// registerBroker replaces the registration it was computed from. The same incarnation again gets the epoch it has.
func (t *tx) registerBroker(c *metapb.RegisterBroker) (Result, error) {
	b, err := brokerOf(c.GetBroker())
	if err != nil {
		return Result{}, err
	}
	have := int64(-1)
	if old, ok := t.img.Broker(b.ID); ok {
		if old.Incarnation == b.Incarnation {
			return Result{Epoch: old.Epoch}, nil
		}
		have = old.Epoch
	}
	if have != c.ExpectEpoch {
		return Result{}, protocol.Errorf(protocol.InvalidUpdateVersion, "broker %d has epoch %d, not %d", b.ID, have, c.ExpectEpoch)
	}
	plan, err := t.planChanges(c.Changes)
	if err != nil {
		return Result{}, err
	}
	b.Epoch, b.Fenced = int64(t.index), true
	t.putBroker(b)
	t.writeChanges(plan)
	return Result{Epoch: b.Epoch}, nil
}

func (t *tx) setFenced(id int32, epoch int64, fenced bool, changes []*metapb.PartitionChange) (Result, error) {
	old, err := t.brokerAt(id, epoch)
	if err != nil {
		return Result{}, err
	}
	plan, err := t.planChanges(changes)
	if err != nil {
		return Result{}, err
	}
	if old.Fenced != fenced {
		b := *old
		b.Fenced = fenced
		t.putBroker(&b)
	}
	t.writeChanges(plan)
	return Result{Epoch: epoch}, nil
}

func (t *tx) unregisterBroker(c *metapb.UnregisterBroker) (Result, error) {
	if _, err := t.brokerAt(c.GetId(), c.GetEpoch()); err != nil {
		return Result{}, err
	}
	plan, err := t.planChanges(c.Changes)
	if err != nil {
		return Result{}, err
	}
	t.del(u32Key(nsBroker, uint32(c.Id)))
	t.img.brokers = t.img.brokers.Delete(c.Id)
	t.changed.brokers[c.Id] = struct{}{}
	t.writeChanges(plan)
	return Result{}, nil
}

func (t *tx) brokerAt(id int32, epoch int64) (*Broker, error) {
	b, ok := t.img.Broker(id)
	if !ok {
		return nil, protocol.Errorf(protocol.BrokerIDNotRegistered, "broker %d is not registered", id)
	}
	if b.Epoch != epoch {
		return nil, protocol.Errorf(protocol.StaleBrokerEpoch, "broker %d has epoch %d, not %d", id, b.Epoch, epoch)
	}
	return b, nil
}

func (t *tx) putBroker(b *Broker) {
	t.setProto(u32Key(nsBroker, uint32(b.ID)), b.toProto())
	t.img.brokers = t.img.brokers.Set(b.ID, b)
	t.changed.brokers[b.ID] = struct{}{}
}

// allocateProducerIDs gives out the block the command was computed for; a repetition finds the counter moved and is refused.
func (t *tx) allocateProducerIDs(c *metapb.AllocateProducerIds) (Result, error) {
	const maxBlock = 1 << 20
	if c.GetCount() <= 0 || c.Count > maxBlock {
		return Result{}, malformed("producer id block of %d", c.GetCount())
	}
	if _, err := t.brokerAt(c.Broker, c.BrokerEpoch); err != nil {
		return Result{}, err
	}
	first := t.img.cluster.NextProducerID
	if c.ExpectNext != first {
		return Result{}, protocol.Errorf(protocol.InvalidUpdateVersion, "next producer id is %d, not %d", first, c.ExpectNext)
	}
	if first > (1<<63-1)-c.Count {
		return Result{}, protocol.Errorf(protocol.UnknownServerError, "producer ids are used up")
	}
	t.img.cluster.NextProducerID += c.Count
	t.recordProducerIDs(first + c.Count)
	return Result{First: first, Count: c.Count}, nil
}

func brokerOf(p *metapb.Broker) (*Broker, error) {
	if p == nil || p.Id < 0 || len(p.Dirs) > maxDirs || len(p.Endpoints) > maxEndpoints {
		return nil, malformed("broker registration")
	}
	inc, ok := uuidOf(p.Incarnation)
	if !ok {
		return nil, malformed("incarnation of %d bytes", len(p.Incarnation))
	}
	b := &Broker{ID: p.Id, Epoch: p.Epoch, Incarnation: inc, Rack: p.Rack, Fenced: p.Fenced}
	if b.Dirs, ok = uuidsOf(p.Dirs); !ok {
		return nil, malformed("directory id")
	}
	for _, e := range p.Endpoints {
		b.Endpoints = append(b.Endpoints, Endpoint{Name: e.GetName(), Protocol: e.GetProtocol(), Host: e.GetHost(), Port: e.GetPort()})
	}
	return b, nil
}

func (b *Broker) toProto() *metapb.Broker {
	p := &metapb.Broker{
		Id: b.ID, Epoch: b.Epoch, Incarnation: b.Incarnation[:], Dirs: idBytes(b.Dirs), Rack: b.Rack, Fenced: b.Fenced,
	}
	for _, e := range b.Endpoints {
		p.Endpoints = append(p.Endpoints, &metapb.Endpoint{Name: e.Name, Protocol: e.Protocol, Host: e.Host, Port: e.Port})
	}
	return p
}

func uuidsOf(bs [][]byte) ([]protocol.UUID, bool) {
	out := make([]protocol.UUID, 0, len(bs))
	for _, b := range bs {
		id, ok := uuidOf(b)
		if !ok {
			return nil, false
		}
		out = append(out, id)
	}
	return out, true
}

// Registration turns a broker into the body of a RegisterBroker command.
func Registration(b *Broker) *metapb.Broker { return b.toProto() }

// noDuplicates reports whether all ids are there once and none is negative.
func noDuplicates(ids []int32) bool {
	for i, id := range ids {
		if id < 0 || slices.Contains(ids[:i], id) {
			return false
		}
	}
	return true
}
