package wire

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMalformed reports bytes that are not a protobuf message.
var ErrMalformed = errors.New("not a protobuf message")

// A Reader steps over the fields of a message, in their order on the wire:
//
//	for r := wire.Read(message); r.Next(); {
//		switch r.Number { … }
//	}
//
// A field whose wire type does not match its number reads as zero or empty, as in protobuf. A field that occurs twice
// is returned twice.
type Reader struct {
	Number protowire.Number
	Varint uint64 // of a varint field; otherwise 0
	Bytes  []byte // of a length-delimited field, part of the message; otherwise nil

	rest []byte
	err  error
}

// Read makes a reader of a message.
func Read(message []byte) Reader { return Reader{rest: message} }

// Next advances to the next field. It returns false at the end, and after an error.
func (r *Reader) Next() bool {
	if len(r.rest) == 0 || r.err != nil {
		return false
	}
	tag, n := varint(r.rest)
	if n <= 0 {
		return r.fail()
	}
	number, kind := protowire.DecodeTag(tag)
	if number < protowire.MinValidNumber || number > protowire.MaxValidNumber {
		return r.fail()
	}
	r.rest = r.rest[n:]
	r.Number, r.Varint, r.Bytes = number, 0, nil
	switch kind {
	case protowire.VarintType:
		r.Varint, n = varint(r.rest)
	case protowire.BytesType:
		r.Bytes, n = protowire.ConsumeBytes(r.rest)
	default:
		n = protowire.ConsumeFieldValue(number, kind, r.rest)
	}
	if n <= 0 {
		return r.fail()
	}
	r.rest = r.rest[n:]
	return true
}

// Err returns why Next ended before the end of the message, or nil.
func (r *Reader) Err() error { return r.err }

func (r *Reader) fail() bool {
	r.err = ErrMalformed
	return false
}

// varint reads a varint; n is 0 or less if there is none. Most have one byte.
func varint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return protowire.ConsumeVarint(b)
}
