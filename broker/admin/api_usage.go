package admin

import (
	"net/http"
)

// TierUsage answers /api/v1/tier/usage: what the tier holds, and what this broker asked of the store since it started.
type TierUsage struct {
	SinceMs  int64        `json:"sinceMs"` // Unix time
	UptimeMs int64        `json:"uptimeMs"`
	Topics   []TopicUsage `json:"topics"`
	Other    []UsageRow   `json:"other"` // requests that are no topic's: journal, lists, deletes, owner
}

// TopicUsage is one topic's part. Storage is the whole cluster's, requests are this broker's.
type TopicUsage struct {
	Topic           string     `json:"topic,omitempty"` // absent when the topic is deleted
	TopicID         string     `json:"topicId"`
	Segments        int64      `json:"segments"`
	Bytes           int64      `json:"bytes"`
	DeletingObjects int64      `json:"deletingObjects"` // that wait for varve.tier.delete.delay.ms
	DeletingBytes   int64      `json:"deletingBytes"`
	Requests        []UsageRow `json:"requests"`
}

// UsageRow counts requests of one kind.
type UsageRow struct {
	Verb     string `json:"verb"`
	Cause    string `json:"cause"`
	Requests int64  `json:"requests"`
	Bytes    int64  `json:"bytes"`
	Errors   int64  `json:"errors"`
}

func (s *Server) usage(w http.ResponseWriter, r *http.Request) {
	src := s.sources()
	if src.Tier == nil || src.Store == nil {
		writeProblem(w, http.StatusNotFound, "this broker has no tier; start it with varve.tier.url set")
		return
	}
	stored, err := src.Tier.Stored(r.Context())
	if err != nil {
		writeProblem(w, http.StatusInternalServerError, err.Error())
		return
	}
	out := TierUsage{SinceMs: s.started.UnixMilli(), UptimeMs: src.now().Sub(s.started).Milliseconds(), Topics: []TopicUsage{}, Other: []UsageRow{}}
	byID := map[string]int{}
	for _, t := range stored {
		byID[t.TopicID.String()] = len(out.Topics)
		out.Topics = append(out.Topics, TopicUsage{t.Topic, t.TopicID.String(), t.Segments, t.Bytes, t.DeletingObjects, t.DeletingBytes, []UsageRow{}})
	}
	for _, u := range src.Store.Detailed() {
		row := UsageRow{string(u.Verb), u.Cause, u.Requests, u.Bytes, u.Errors}
		if u.Group == "" {
			out.Other = append(out.Other, row)
			continue
		}
		i, ok := byID[u.Group]
		if !ok {
			i = len(out.Topics)
			byID[u.Group] = i
			out.Topics = append(out.Topics, TopicUsage{TopicID: u.Group, Requests: []UsageRow{}})
		}
		out.Topics[i].Requests = append(out.Topics[i].Requests, row)
	}
	writeJSON(w, out)
}
