package wire

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

func TestAFieldOfTheWrongTypeReadsAsZero(t *testing.T) {
	b := protowire.AppendTag(nil, 1, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, 7)
	b = protowire.AppendTag(b, 2, protowire.StartGroupType)
	b = protowire.AppendTag(b, 2, protowire.EndGroupType)
	b = protowire.AppendTag(b, 3, protowire.VarintType)
	b = protowire.AppendVarint(b, 1<<40)
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	b = protowire.AppendString(b, "x")
	r := Read(b)
	want := []struct {
		number protowire.Number
		varint uint64
		text   string
	}{{1, 0, ""}, {2, 0, ""}, {3, 1 << 40, ""}, {4, 0, "x"}}
	for _, w := range want {
		if !r.Next() || r.Number != w.number || r.Varint != w.varint || string(r.Bytes) != w.text {
			t.Errorf("%d: %d %q, want %+v", r.Number, r.Varint, r.Bytes, w)
		}
	}
	if r.Next() || r.Err() != nil {
		t.Errorf("after the end: %v", r.Err())
	}
}

func TestGarbageIsAnErrorAndTheEnd(t *testing.T) {
	for _, b := range []string{"\x80", "\x00", "\x08", "\x0a\x05ab", "\x0c", "\x0f", "\x09\x01"} {
		r := Read([]byte(b))
		for range 3 {
			if r.Next() {
				t.Errorf("%q: a field %d", b, r.Number)
			}
		}
		if !errors.Is(r.Err(), ErrMalformed) {
			t.Errorf("%q: %v", b, r.Err())
		}
	}
}

// FuzzReader: what protobuf takes for a message, the reader does, and the other
// way round.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{"", "\x08\x01", "\x0a\x03abc\x10\x05", "\x09\x01\x02\x03\x04\x05\x06\x07\x08",
		"\x0b\x08\x01\x0c", "\x80\x80\x80\x80\x10\x01"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := Read(data)
		read := 0
		for r.Next() {
			read++
			if read > len(data) {
				t.Fatal("more fields than bytes")
			}
		}
		whole := proto.Unmarshal(data, &emptypb.Empty{}) == nil
		if whole != (r.Err() == nil) {
			t.Errorf("the reader has %v, protobuf %v", r.Err(), whole)
		}
	})
}
