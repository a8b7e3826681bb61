package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
)

// maxTopicName is Kafka's bound (Topic.java).
const maxTopicName = 249

// ValidateTopicName checks a name as Kafka does (Topic.java).
//
// Errors: InvalidTopicException.
func ValidateTopicName(name string) error {
	why := ""
	switch {
	case name == "":
		why = "the empty string is not allowed"
	case name == "." || name == "..":
		why = fmt.Sprintf("'%s' is not allowed", name)
	case len(name) > maxTopicName:
		why = fmt.Sprintf("the length of '%s' is longer than the max allowed length %d", name, maxTopicName)
	case strings.ContainsFunc(name, notInTopicName):
		why = fmt.Sprintf("'%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
	default:
		return nil
	}
	return protocol.Errorf(protocol.InvalidTopicException, "Topic name is invalid: %s", why)
}

func notInTopicName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
}

// checkNewName refuses illegal names, names that exist, and names that differ from an existing one only in '.' and '_'.
func checkNewName(img *metastore.Image, name string) error {
	if _, ok := img.Topic(name); ok {
		return protocol.Errorf(protocol.TopicAlreadyExists, "Topic '%s' already exists.", name)
	}
	if err := ValidateTopicName(name); err != nil {
		return err
	}
	if !strings.ContainsAny(name, "._") {
		return nil
	}
	unified := strings.ReplaceAll(name, ".", "_")
	for t := range img.Topics() {
		if len(t.Name) == len(name) && strings.ReplaceAll(t.Name, ".", "_") == unified {
			return protocol.Errorf(protocol.InvalidTopicException, "Topic '%s' collides with existing topic: %s", name, t.Name)
		}
	}
	return nil
}

// stepCreateTopic decides about one topic. id and seed come from the shell.
func stepCreateTopic(img *metastore.Image, c CreateTopic, o *Options, id protocol.UUID, seed uint32) (p plan, r CreateResult) {
	r = CreateResult{Name: c.Name, Configs: c.Configs}
	if r.Err = checkNewName(img, c.Name); r.Err != nil {
		return p, r
	}
	if o.ValidateTopicConfig != nil {
		if r.Err = o.ValidateTopicConfig(c.Configs); r.Err != nil {
			return p, r
		}
	}
	var replicas [][]int32
	if len(c.Assignments) > 0 {
		replicas, r.Err = manual(img, c)
	} else {
		replicas, r.Err = automatic(img, c, o, seed)
	}
	if r.Err != nil {
		return p, r
	}
	var parts []*metapb.Partition
	if parts, r.Err = newPartitions(img, replicas, 0); r.Err != nil {
		return p, r
	}
	r.ID, r.Partitions, r.ReplicationFactor = id, int32(len(parts)), int16(len(replicas[0]))
	p.cmds = []*metapb.Command{{Body: &metapb.Command_CreateTopic{CreateTopic: &metapb.CreateTopic{
		TopicId: id[:], Name: c.Name, Configs: c.Configs, Partitions: parts, ImageIndex: img.Index(),
	}}}}
	return p, r
}

func automatic(img *metastore.Image, c CreateTopic, o *Options, seed uint32) ([][]int32, error) {
	if c.ReplicationFactor < -1 || c.ReplicationFactor == 0 {
		return nil, protocol.Errorf(protocol.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	}
	if c.Partitions < -1 || c.Partitions == 0 {
		return nil, protocol.Errorf(protocol.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	n, rf := c.Partitions, c.ReplicationFactor
	if n == -1 {
		n = max(o.DefaultPartitions, 1)
	}
	if rf == -1 {
		rf = max(o.DefaultReplicationFactor, 1)
	}
	if n > metastore.MaxPartitionsPerTopic {
		return nil, protocol.Errorf(protocol.InvalidPartitions, "A topic can have at most %d partitions.", metastore.MaxPartitionsPerTopic)
	}
	replicas, err := place(img, int(n), int(rf), seed)
	if err != nil {
		return nil, protocol.Errorf(protocol.InvalidReplicationFactor, "Unable to replicate the partition %d time(s): %s", rf, err)
	}
	return replicas, nil
}

func manual(img *metastore.Image, c CreateTopic) ([][]int32, error) {
	if c.ReplicationFactor != -1 {
		return nil, protocol.Errorf(protocol.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	if c.Partitions != -1 {
		return nil, protocol.Errorf(protocol.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	if len(c.Assignments) > metastore.MaxPartitionsPerTopic {
		return nil, protocol.Errorf(protocol.InvalidPartitions, "A topic can have at most %d partitions.", metastore.MaxPartitionsPerTopic)
	}
	replicas := make([][]int32, len(c.Assignments))
	rf := len(c.Assignments[0].Brokers)
	seen := map[int32]bool{}
	for _, a := range c.Assignments {
		if seen[a.Partition] {
			return nil, protocol.Errorf(protocol.InvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d", a.Partition)
		}
		seen[a.Partition] = true
		if err := checkManual(img, a.Brokers, rf); err != nil {
			return nil, err
		}
		if a.Partition >= 0 && int(a.Partition) < len(replicas) {
			replicas[a.Partition] = a.Brokers
		}
	}
	for _, r := range replicas {
		if r == nil {
			return nil, protocol.Errorf(protocol.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
	}
	return replicas, nil
}

func checkManual(img *metastore.Image, brokers []int32, rf int) error {
	if len(brokers) == 0 {
		return protocol.Errorf(protocol.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
	}
	for i, id := range brokers {
		if _, ok := img.Broker(id); !ok {
			return protocol.Errorf(protocol.InvalidReplicaAssignment, "The manual partition assignment includes broker %d, but no such broker is registered.", id)
		}
		if slices.Contains(brokers[:i], id) {
			return protocol.Errorf(protocol.InvalidReplicaAssignment, "The manual partition assignment includes the broker %d more than once.", id)
		}
	}
	if len(brokers) != rf {
		return protocol.Errorf(protocol.InvalidReplicaAssignment, "The manual partition assignment includes a partition with %d replica(s), but this is "+
			"not consistent with previous partitions, which have %d replica(s).", len(brokers), rf)
	}
	return nil
}

// place spreads n partitions over the unfenced brokers, each with its replicas on different racks as far as there are racks. Leaders go round
// in an order that changes racks at each step; each round shifts the followers against the leaders. Replicas that the unfenced brokers
// cannot take go to fenced ones.
func place(img *metastore.Image, n, rf int, seed uint32) ([][]int32, error) {
	order := rackOrder(img.Brokers())
	live := slices.DeleteFunc(slices.Clone(order), func(b *metastore.Broker) bool { return b.Fenced })
	if len(live) == 0 {
		return nil, fmt.Errorf("All brokers are currently fenced.") //lint:ignore ST1005 Kafka's text, shown to clients
	}
	if rf > len(order) {
		//lint:ignore ST1005 Kafka's text, shown to clients
		return nil, fmt.Errorf("The target replication factor of %d cannot be reached because only %d broker(s) are registered.", rf, len(order))
	}
	if rf > len(live) {
		for _, b := range order {
			if b.Fenced {
				live = append(live, b)
			}
		}
	}
	out := make([][]int32, n)
	leaders := slices.DeleteFunc(slices.Clone(live), func(b *metastore.Broker) bool { return b.Fenced })
	for i := range out {
		lead := (int(seed%uint32(len(leaders))) + i) % len(leaders)
		out[i] = append(make([]int32, 0, rf), leaders[lead].ID)
		racks := []string{leaders[lead].Rack}
		// The first round takes new racks only, the second whatever is left.
		for k := 0; len(out[i]) < rf; k++ {
			b := live[(lead+1+i/len(leaders)+k)%len(live)]
			if slices.Contains(out[i], b.ID) || k < len(live) && slices.Contains(racks, b.Rack) {
				continue
			}
			out[i], racks = append(out[i], b.ID), append(racks, b.Rack)
		}
	}
	return out, nil
}

// rackOrder takes one broker of each rack in turn.
func rackOrder(brokers []*metastore.Broker) []*metastore.Broker {
	place := map[string]int{}
	rank := map[int32]int{}
	for _, b := range brokers {
		rank[b.ID] = place[b.Rack]
		place[b.Rack]++
	}
	out := slices.Clone(brokers)
	slices.SortStableFunc(out, func(a, b *metastore.Broker) int {
		return cmp.Or(cmp.Compare(rank[a.ID], rank[b.ID]), cmp.Compare(a.Rack, b.Rack), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// newPartitions gives each new partition its first state: in sync are the replicas on unfenced brokers, the first of them leads.
func newPartitions(img *metastore.Image, replicas [][]int32, first int) ([]*metapb.Partition, error) {
	alive := unfenced(img, -1, -1)
	out := make([]*metapb.Partition, len(replicas))
	for i, ids := range replicas {
		p := &metastore.Partition{Replicas: ids, Dirs: make([]protocol.UUID, len(ids))}
		for _, id := range ids {
			if alive(id) {
				p.ISR = append(p.ISR, id)
			}
		}
		if len(p.ISR) == 0 {
			return nil, protocol.Errorf(protocol.InvalidReplicaAssignment,
				"All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", first+i)
		}
		p.Leader = p.ISR[0]
		out[i] = metastore.PartitionState(p)
	}
	return out, nil
}

func stepDeleteTopic(img *metastore.Image, d DeleteTopic) (p plan, r DeleteResult) {
	r = DeleteResult{Name: d.Name, ID: d.ID}
	var t *metastore.Topic
	var ok bool
	switch {
	case d.Name != "" && !d.ID.IsZero():
		r.Err = protocol.Errorf(protocol.InvalidRequest, "You may not specify both topic name and topic id.")
		return p, r
	case d.Name == "" && d.ID.IsZero():
		r.Err = protocol.Errorf(protocol.InvalidRequest, "Neither topic name nor id were specified.")
		return p, r
	case d.Name != "":
		if t, ok = img.Topic(d.Name); !ok {
			r.Err = protocol.UnknownTopicOrPartition
			return p, r
		}
	default:
		if t, ok = img.TopicByID(d.ID); !ok {
			r.Err = protocol.UnknownTopicID
			return p, r
		}
	}
	r.Name, r.ID = t.Name, t.ID
	p.cmds = []*metapb.Command{{Body: &metapb.Command_DeleteTopic{DeleteTopic: &metapb.DeleteTopic{TopicId: t.ID[:]}}}}
	return p, r
}

func stepCreatePartitions(img *metastore.Image, c CreatePartitions, seed uint32) (p plan, err error) {
	t, ok := img.Topic(c.Topic)
	if !ok {
		return p, protocol.UnknownTopicOrPartition
	}
	have := len(t.Partitions)
	add := int(c.Count) - have
	switch {
	case add == 0:
		return p, protocol.Errorf(protocol.InvalidPartitions, "Topic already has %d partition(s).", have)
	case add < 0:
		return p, protocol.Errorf(protocol.InvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", c.Topic, have, c.Count)
	case int(c.Count) > metastore.MaxPartitionsPerTopic:
		return p, protocol.Errorf(protocol.InvalidPartitions, "A topic can have at most %d partitions.", metastore.MaxPartitionsPerTopic)
	case c.Assignments != nil && len(c.Assignments) != add:
		return p, protocol.Errorf(protocol.InvalidReplicaAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.",
			add, len(c.Assignments))
	}
	rf := len(t.Partitions[0].Replicas)
	replicas := c.Assignments
	for _, brokers := range replicas {
		if err := checkManual(img, brokers, rf); err != nil {
			return p, err
		}
	}
	if replicas == nil {
		if replicas, err = place(img, add, rf, seed); err != nil {
			return p, protocol.Errorf(protocol.InvalidReplicationFactor, "Unable to replicate the partition %d time(s): %s", rf, err)
		}
	}
	parts, err := newPartitions(img, replicas, have)
	if err != nil {
		return p, err
	}
	p.cmds = []*metapb.Command{{Body: &metapb.Command_CreatePartitions{CreatePartitions: &metapb.CreatePartitions{
		TopicId: t.ID[:], ExpectCount: int32(have), Partitions: parts,
	}}}}
	return p, nil
}
