package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"varve/protocol"
	"varve/tiering"
	"varve/tiering/objstore"
)

// Restorer takes the topics of a lost cluster in from the bucket; *tiering.Manager does.
type Restorer interface {
	StartRestore(ctx context.Context, req tiering.RestoreRequest) (protocol.UUID, error)
	AbortRestore(ctx context.Context) error
	RestoreStatus(ctx context.Context, id string) (tiering.RestoreStatus, error)
	ReleaseRestored(ctx context.Context, pattern string) ([]string, error)
}

// RestoreOrder is the body of POST /api/v1/tier/restore.
type RestoreOrder struct {
	From     string `json:"from"`    // tier URL: this cluster's own, since objects stay where they are
	Cluster  string `json:"cluster"` // "" when the bucket leaves no choice
	ToMs     int64  `json:"toMs"`    // point in time, Unix ms; 0 = the newest
	Topics   string `json:"topics"`  // pattern; "" = all
	Salvage  bool   `json:"salvage"`
	TakeOver bool   `json:"takeOver"`
	Abort    bool   `json:"abort"` // of the one under way; all else is ignored
}

// RestoreStarted answers it.
type RestoreStarted struct {
	ID string `json:"id"`
}

// ReleaseOrder is the body of POST /api/v1/tier/release.
type ReleaseOrder struct {
	Topics string `json:"topics"` // pattern; "" = all that are held
}

// Released answers it.
type Released struct {
	Topics []string `json:"topics"`
}

// restore answers GET /api/v1/tier/restore?id=ID with a tiering.RestoreStatus, and POST with a RestoreStarted.
func (s *Server) restore(w http.ResponseWriter, r *http.Request) {
	if s.sources().Restore == nil {
		writeProblem(w, http.StatusNotFound, "this broker has no tier; start it with varve.tier.url set")
		return
	}
	if r.Method == http.MethodGet {
		st, err := s.sources().Restore.RestoreStatus(r.Context(), r.URL.Query().Get("id"))
		if err != nil {
			writeProblem(w, http.StatusBadGateway, err.Error())
			return
		}
		writeJSON(w, st)
		return
	}
	onlyPost(s.startRestore)(w, r)
}

func (s *Server) startRestore(w http.ResponseWriter, r *http.Request) {
	var o RestoreOrder
	if !readBody(w, r, &o) {
		return
	}
	if o.Abort {
		if err := s.sources().Restore.AbortRestore(r.Context()); err != nil {
			writeProblem(w, restoreStatus(err), err.Error())
			return
		}
		writeJSON(w, RestoreStarted{})
		return
	}
	u, err := objstore.ParseURL(o.From)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	if own := s.sources().TierURL; u.String() != own {
		writeProblem(w, http.StatusBadRequest, "the objects of a restore stay where they are, and this cluster's tier is "+own+
			": start the empty cluster with varve.tier.url="+u.String())
		return
	}
	id, err := s.sources().Restore.StartRestore(r.Context(), tiering.RestoreRequest{
		Source: o.Cluster, ToMs: o.ToMs, Topics: o.Topics, Salvage: o.Salvage, TakeOver: o.TakeOver,
	})
	if err != nil {
		writeProblem(w, restoreStatus(err), err.Error())
		return
	}
	writeJSON(w, RestoreStarted{ID: id.String()})
}

// release answers POST /api/v1/tier/release.
func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	if s.sources().Restore == nil {
		writeProblem(w, http.StatusNotFound, "this broker has no tier; start it with varve.tier.url set")
		return
	}
	var o ReleaseOrder
	if !readBody(w, r, &o) {
		return
	}
	names, err := s.sources().Restore.ReleaseRestored(r.Context(), o.Topics)
	if err != nil {
		writeProblem(w, restoreStatus(err), err.Error())
		return
	}
	writeJSON(w, Released{Topics: names})
}

func readBody(w http.ResponseWriter, r *http.Request, into any) bool {
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(into); err != nil {
		writeProblem(w, http.StatusBadRequest, "the body is not what is expected here: "+err.Error())
		return false
	}
	return true
}

// restoreStatus tells what the caller can mend from what it cannot.
func restoreStatus(err error) int {
	var none *tiering.NoSourceError
	var owner *tiering.OwnerError
	switch {
	case errors.As(err, &none), errors.As(err, &owner), protocol.CodeOf(err) == protocol.InvalidRequest:
		return http.StatusBadRequest
	case protocol.CodeOf(err) == protocol.NotController:
		return http.StatusConflict
	}
	return http.StatusBadGateway
}
