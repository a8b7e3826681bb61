package record

// Header is a record header. A nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record. Key, Value and header values of a record that an Iter
// hands out are valid until its next step.
type Record struct {
	Offset    int64
	Timestamp int64  // ms
	Key       []byte // nil is null
	Value     []byte // nil is null
	Headers   []Header
}

// Iter walks the records of a batch in order:
//
//	it := b.Records()
//	defer it.Close()
//	for it.Next() { use(it.Record()) }
//	return it.Err()
//
// It checks each record's structure, not the CRC and not the rules of Validate.
type Iter struct {
	batch Batch
	plain source   // the source of an uncompressed batch
	dec   *decoder // of a compressed one, until closed
	left  int32
	rec   Record
	err   error
}

// Records returns an iterator before the first record.
func (b Batch) Records() *Iter {
	it := &Iter{batch: b, left: b.Count()}
	if b.Codec() == None || it.left <= 0 {
		it.plain.buf = b[HeaderLen:]
	} else {
		it.dec, it.err = openDecoder(b.Codec(), b[HeaderLen:], MaxDecompressedBytes)
	}
	return it
}

// Next moves to the next record. It returns false at the end, and at the first
// error, which Err tells then.
func (it *Iter) Next() bool {
	if it.err != nil || it.left <= 0 {
		it.Close()
		return false
	}
	it.left--
	var r raw
	if it.err = it.read(&r); it.err != nil {
		it.Close()
		return false
	}
	b := it.batch
	it.rec.Offset = b.BaseOffset() + int64(r.offsetDelta)
	it.rec.Timestamp = b.BaseTimestamp() + r.timestampDelta
	if b.LogAppendTime() {
		it.rec.Timestamp = b.MaxTimestamp()
	}
	it.rec.Key, it.rec.Value = r.key, r.value
	it.rec.Headers = it.rec.Headers[:0]
	for rest := r.headers; len(rest) > 0; {
		var key, value []byte
		// parse has walked these bytes: no error can come.
		key, value, rest, _ = cutHeader(rest)
		it.rec.Headers = append(it.rec.Headers, Header{Key: string(key), Value: value})
	}
	return true
}

func (it *Iter) read(r *raw) error {
	s := &it.plain
	if it.dec != nil {
		s = &it.dec.source
	}
	if err := s.next(r, true); err != nil {
		return err
	}
	if it.left > 0 {
		return nil
	}
	end, err := s.atEnd()
	if err == nil && !end {
		err = invalid("record batch has bytes after its %d records", it.batch.Count())
	}
	return err
}

// Record returns the current record. The pointer stays the same; what it points
// to changes with Next.
func (it *Iter) Record() *Record { return &it.rec }

// Err returns what ended the iteration, nil at the proper end.
func (it *Iter) Err() error { return it.err }

// Close gives the decompressor back. It may be called more than once.
func (it *Iter) Close() {
	it.left = 0
	if it.dec != nil {
		it.dec.close()
		it.dec = nil
	}
}

// Each calls f for every record in order, until f returns an error, which it
// returns then. The record is valid during the call only.
func (b Batch) Each(f func(r *Record) error) error {
	it := b.Records()
	defer it.Close()
	for it.Next() {
		if err := f(&it.rec); err != nil {
			return err
		}
	}
	return it.err
}

// Times calls f with offset and timestamp (ms) of each record in order, until f
// returns false. Keys, values and headers are checked in passing and dropped,
// so that a record takes no memory however large it is.
func (b Batch) Times(f func(offset, timestamp int64) bool) error {
	if b.Codec() == None || b.Count() <= 0 {
		return b.times(&source{buf: b[HeaderLen:]}, f)
	}
	d, err := openDecoder(b.Codec(), b[HeaderLen:], MaxDecompressedBytes)
	if err != nil {
		return err
	}
	defer d.close()
	return b.times(&d.source, f)
}

func (b Batch) times(s *source, f func(offset, timestamp int64) bool) error {
	var r raw
	for range b.Count() {
		if err := s.next(&r, false); err != nil {
			return err
		}
		at := b.BaseTimestamp() + r.timestampDelta
		if b.LogAppendTime() {
			at = b.MaxTimestamp()
		}
		if !f(b.BaseOffset()+int64(r.offsetDelta), at) {
			break
		}
	}
	return nil
}
