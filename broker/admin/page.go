package admin

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
)

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"size": size}).Parse(pageSource))

type pageData struct {
	Cluster Cluster
	Topics  []pageTopic
	Tier    *TierStatus
	Now     string
}

type pageTopic struct {
	Name                            string
	Partitions                      int
	Records, LocalBytes, TierBytes  int64
	LagBytes, Segments, LostOffsets int64
	Problems                        []string
}

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	d := pageData{Cluster: s.cluster(), Now: s.sources().now().UTC().Format(pageTimeFormatLayout)}
	rows := map[string]*pageTopic{}
	var order []*pageTopic
	for _, t := range s.topics() {
		row := &pageTopic{Name: t.Name, Partitions: len(t.Partitions)}
		for _, p := range t.Partitions {
			if p.Here == nil {
				continue
			}
			row.Records += p.Here.HighWatermark - p.Here.LogStart
			row.LocalBytes += p.Here.LocalBytes
			for _, l := range p.Here.Lost {
				row.LostOffsets += l.To - l.From
			}
			if p.Here.Problem != "" {
				row.Problems = append(row.Problems, fmt.Sprintf("partition %d: %s", p.Partition, p.Here.Problem))
			}
		}
		rows[t.Name] = row
		order = append(order, row)
	}
	if s.sources().Tier != nil {
		tier := s.tier()
		d.Tier = &tier
		for _, p := range tier.Partitions {
			if row := rows[p.Topic]; row != nil {
				row.TierBytes += p.TierBytes
				row.LagBytes += p.LagBytes
				row.Segments += p.Segments
				if p.LastError != "" {
					row.Problems = append(row.Problems, fmt.Sprintf("partition %d: %s", p.Partition, p.LastError))
				}
			}
		}
	}
	for _, row := range order {
		d.Topics = append(d.Topics, *row)
	}
	var body bytes.Buffer
	if err := pageTemplate.Execute(&body, d); err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(body.Bytes())
}

// size writes bytes for people.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}
