// Package conditions finds what is wrong: the conditions of a moment, the incidents that they become when they last,
// and the problems of each cluster, endpoint and Envoy, in sentences for people.
//
// It is pure: an [Observation] goes in, with its time, and lists come out. So the page, the JSON, the command line and
// docs/symptoms.md, which is made of these sentences, agree. It also has the state of an endpoint and of an Envoy in a
// word ([EndpointState], [ClientState]), and how numbers and times are written in such sentences (format.go).
package conditions
