// Package trace reads recordings of requests to language models: when each arrived,
// how many tokens its prompt had and how many were generated. The simulator and the
// benchmarks play them.
//
// It is pure: bytes in, requests out. It reads what others have published, plain or
// compressed by gzip, and recognizes the form by the first line:
//
//   - Azure's LLM inference traces, CSV with the columns TIMESTAMP (date and time),
//     ContextTokens and GeneratedTokens
//   - BurstGPT, CSV with the columns Timestamp (seconds), Request tokens and
//     Response tokens
//   - Mooncake, one JSON object a line with timestamp (milliseconds), input_length,
//     output_length and hash_ids
//
// Reading is strict. A line that is not understood is an error with its number and
// with what to write instead; so is a time before that of the line above. Other
// columns of a CSV are not read, and hash_ids are checked and not used. Requests
// without a prompt or without an answer, by which BurstGPT marks failures, are left
// out and counted.
package trace
