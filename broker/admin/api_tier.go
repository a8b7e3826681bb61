package admin

import (
	"net"
	"strconv"
)

// TierStatus answers /api/v1/tier/status.
type TierStatus struct {
	Location   string          `json:"location"`
	Problems   []string        `json:"problems"` // empty when all is well
	Total      TierTotal       `json:"total"`
	Partitions []TierPartition `json:"partitions"`
	Cache      TierCache       `json:"cache"`
	Scrub      []TierScrub     `json:"scrub"` // the last pass of each level
	Store      []StoreUse      `json:"store"` // since the broker started
	Dollars    float64         `json:"dollars"`
}

// TierTotal sums over the partitions that this broker leads.
type TierTotal struct {
	Partitions int   `json:"partitions"`
	Segments   int64 `json:"segments"` // objects in the tier that can be read
	TierBytes  int64 `json:"tierBytes"`
	LocalBytes int64 `json:"localBytes"`
	LagBytes   int64 `json:"lagBytes"`
}

// TierPartition is one led partition. The tier has [TierStart, TierEnd), local disk [LocalStart, LocalEnd).
type TierPartition struct {
	Topic       string `json:"topic"`
	TopicID     string `json:"topicId"`
	Partition   int32  `json:"partition"`
	LogStart    int64  `json:"logStart"`
	TierStart   int64  `json:"tierStart"`
	TierEnd     int64  `json:"tierEnd"`
	LocalStart  int64  `json:"localStart"`
	LocalEnd    int64  `json:"localEnd"`
	Segments    int64  `json:"segments"`
	TierBytes   int64  `json:"tierBytes"`
	LocalBytes  int64  `json:"localBytes"`
	LagBytes    int64  `json:"lagBytes"`
	LagOffsets  int64  `json:"lagOffsets"`
	LastError   string `json:"lastError,omitempty"`
	LastErrorMs int64  `json:"lastErrorMs,omitempty"` // Unix time
}

// TierScrub is the last pass of the scrub at one level.
type TierScrub struct {
	VerifyReport
	EndedMs int64 `json:"endedMs"` // Unix time
}

// TierCache is the chunk cache.
type TierCache struct {
	CapacityBytes int64  `json:"capacityBytes"`
	UsedBytes     int64  `json:"usedBytes"`
	Hits          uint64 `json:"hits"` // chunks
	Misses        uint64 `json:"misses"`
	CorruptChunks uint64 `json:"corruptChunks"`
}

// StoreUse is what was asked of the store for one reason.
type StoreUse struct {
	Verb     string  `json:"verb"`
	Cause    string  `json:"cause"`
	Calls    int64   `json:"calls"`
	Requests int64   `json:"requests"`
	Errors   int64   `json:"errors"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
	Dollars  float64 `json:"dollars"`
}

func (s *Server) tier() TierStatus {
	st := s.sources().Tier.Status()
	out := TierStatus{Location: st.Location, Problems: append([]string{}, st.Errors...), Partitions: []TierPartition{}, Scrub: []TierScrub{}, Store: []StoreUse{}}
	for _, p := range st.Scrub {
		out.Scrub = append(out.Scrub, TierScrub{*verifyReport(p.Level, p.Report, p.TookMs), p.EndedMs})
	}
	for _, p := range st.Partitions {
		out.Partitions = append(out.Partitions, TierPartition{Topic: p.Topic, TopicID: p.TopicID.String(), Partition: p.Partition,
			LogStart: p.LogStart, TierStart: p.TierStart, TierEnd: p.TierEnd, LocalStart: p.LocalStart, LocalEnd: p.LocalEnd,
			Segments: p.Segments, TierBytes: p.Bytes, LocalBytes: p.LocalBytes, LagBytes: p.LagBytes, LagOffsets: p.LagOffsets,
			LastError: p.LastError, LastErrorMs: p.LastErrorMs})
		out.Total.Partitions++
		out.Total.Segments += p.Segments
		out.Total.TierBytes += p.Bytes
		out.Total.LocalBytes += p.LocalBytes
		out.Total.LagBytes += p.LagBytes
	}
	c := st.Cache
	out.Cache = TierCache{c.CapacityBytes, c.UsedBytes, c.Hits, c.Misses, c.CorruptChunks}
	if s.sources().Store != nil {
		for _, u := range s.sources().Store.Snapshot() {
			out.Store = append(out.Store, StoreUse{string(u.Verb), u.Cause, u.Calls, u.Requests, u.Errors, u.Bytes, u.Seconds, u.Dollars})
			out.Dollars += u.Dollars
		}
	}
	return out
}

func hostPort(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
