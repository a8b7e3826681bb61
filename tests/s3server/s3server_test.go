package s3server

import (
	"context"
	"net/http"
	"os"
	"testing"
)

func TestStartKillRestart(t *testing.T) {
	s := Start(t)
	if !s.answers(t.Context()) {
		t.Fatal("a started server does not answer")
	}
	if err := s.CreateBucket(t.Context(), "another-bucket"); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if s.answers(t.Context()) {
		t.Fatal("a killed server answers")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateBucket(t.Context(), "another-bucket"); err == nil {
		t.Fatal("a restarted server forgot its buckets")
	}
	resp, err := http.Get(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func TestStopRemovesItsFolder(t *testing.T) {
	s, err := StartProcess(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Fatalf("folder of a stopped server: %v", err)
	}
}
