package admin

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"varve/broker/replica"
)

// Cluster answers /api/v1/cluster.
type Cluster struct {
	ClusterID      string   `json:"clusterId"`
	NodeID         int32    `json:"nodeId"`
	Version        string   `json:"version"`
	Controller     int32    `json:"controller"` // -1 when none is known
	Ready          bool     `json:"ready"`
	Problem        string   `json:"problem,omitempty"` // why it is not ready
	UptimeMs       int64    `json:"uptimeMs"`
	MetadataIndex  uint64   `json:"metadataIndex"`
	JournaledIndex uint64   `json:"journaledIndex"`
	TopicCount     int      `json:"topicCount"`
	PartitionCount int      `json:"partitionCount"`
	Brokers        []Broker `json:"brokers"`
}

// Broker is one registered broker.
type Broker struct {
	ID        int32    `json:"id"`
	Rack      string   `json:"rack,omitempty"`
	Fenced    bool     `json:"fenced"`
	Endpoints []string `json:"endpoints"` // NAME://host:port
}

// Topic is one topic of /api/v1/topics.
type Topic struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Configs    map[string]string `json:"configs"`
	Partitions []Partition       `json:"partitions"`
}

// Partition is one partition as this broker sees it. Offsets and sizes are only there for replicas on this broker.
type Partition struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"` // -1 when there is none
	LeaderEpoch int32   `json:"leaderEpoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Here        *Here   `json:"here,omitempty"`
}

// Here is the replica on this broker.
type Here struct {
	State         string `json:"state"`
	Problem       string `json:"problem,omitempty"`
	Tiered        bool   `json:"tiered"`
	LogStart      int64  `json:"logStart"`
	LocalStart    int64  `json:"localStart"`
	TierEnd       int64  `json:"tierEnd"` // -1 when untiered
	LastStable    int64  `json:"lastStable"`
	HighWatermark int64  `json:"highWatermark"`
	End           int64  `json:"end"`
	LocalBytes    int64  `json:"localBytes"`
	Lost          []Lost `json:"lost,omitempty"`
}

// Lost is a range of offsets [From, To) that went with an erased replica.
type Lost struct {
	From int64     `json:"from"`
	To   int64     `json:"to"`
	At   time.Time `json:"at"`
}

func (s *Server) cluster() Cluster {
	c := Cluster{NodeID: s.sources().NodeID, Version: s.sources().Version, Controller: -1, Ready: true, UptimeMs: s.sources().now().Sub(s.started).Milliseconds(), Brokers: []Broker{}}
	if err := s.sources().ready(); err != nil {
		c.Ready, c.Problem = false, err.Error()
	}
	if s.sources().Image == nil {
		return c
	}
	image := s.sources().Image()
	c.ClusterID, c.Controller = image.ClusterID(), image.Controller()
	c.MetadataIndex, c.JournaledIndex = image.Index(), image.JournaledThrough()
	c.TopicCount, c.PartitionCount = image.TopicCount(), image.PartitionCount()
	for _, b := range image.Brokers() {
		row := Broker{ID: b.ID, Rack: b.Rack, Fenced: b.Fenced, Endpoints: []string{}}
		for _, e := range b.Endpoints {
			row.Endpoints = append(row.Endpoints, e.Name+"://"+hostPort(e.Host, e.Port))
		}
		c.Brokers = append(c.Brokers, row)
	}
	return c
}

func (s *Server) topics() []Topic {
	topics := []Topic{}
	if s.sources().Image == nil {
		return topics
	}
	type at struct {
		topic     string
		partition int32
	}
	here := map[at]*Here{}
	if s.sources().Replicas != nil {
		for _, p := range s.sources().Replicas.Describe() {
			here[at{p.Topic, p.Partition}] = describe(p)
		}
	}
	for t := range s.sources().Image().Topics() {
		row := Topic{Name: t.Name, ID: t.ID.String(), Configs: t.Configs, Partitions: []Partition{}}
		for _, p := range t.Partitions {
			row.Partitions = append(row.Partitions, Partition{Partition: p.Index, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
				Replicas: p.Replicas, ISR: p.ISR, Here: here[at{t.Name, p.Index}]})
		}
		topics = append(topics, row)
	}
	slices.SortFunc(topics, func(a, b Topic) int { return cmp.Compare(a.Name, b.Name) })
	return topics
}

func describe(p replica.PartitionInfo) *Here {
	h := &Here{State: string(p.State), Problem: p.Problem, Tiered: p.Tiered, LogStart: p.LogStart, LocalStart: p.LocalStart, TierEnd: p.TierEnd,
		LastStable: p.LastStable, HighWatermark: p.HighWatermark, End: p.End, LocalBytes: p.LocalBytes}
	for _, l := range p.Lost {
		h.Lost = append(h.Lost, Lost{l.From, l.To, l.At})
	}
	return h
}

func writeJSON(w http.ResponseWriter, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		writeProblem(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the client is gone when it fails
}

// Problem is the body of an API answer that is not 200.
type Problem struct {
	Error string `json:"error"`
}

func writeProblem(w http.ResponseWriter, status int, what string) {
	body, err := json.Marshal(Problem{what})
	if err != nil {
		body = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
