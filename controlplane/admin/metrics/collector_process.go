package metrics

import (
	"time"

	"steelyard/controlplane/admin/conditions"
	"steelyard/controlplane/admin/current"
	"steelyard/internal/api"
)

func collectPorts(s sink, p *api.Port, a *api.AdminPort) {
	unread := conditions.NamedBound{Name: "unread_bytes", Bound: p.UnreadBytes}
	for _, b := range append(conditions.ConfiguredBounds(p), unread) {
		of := s.with("bound", b.Name)
		of.set("steelyard_xds_port_used", "Use of the limits of the xDS port.", num(b.Used))
		of.set("steelyard_xds_port_limit", "Limit of the same.", num(b.Limit))
		each(of, labelResult, "steelyard_xds_port_refused_total",
			"New ones refused, or connections displaced, at the limit.", conditions.Results(b.Bound))
	}
	for _, b := range conditions.AdminBounds(a) {
		of := s.with("bound", b.Name)
		of.set("steelyard_admin_port_used", "Connections to the admin listener.",
			num(b.Used))
		of.set("steelyard_admin_port_limit", "Limit of the same.", num(b.Limit))
		each(of, labelResult, "steelyard_admin_port_refused_total",
			"Connections refused or displaced at the limit.", conditions.Results(b.Bound))
	}
	s.set("steelyard_xds_port_paced_requests_total",
		"Requests handled later because their client sends too many.", num(p.PacedRequests))
	s.set("steelyard_xds_port_silent_streams_total",
		"Streams ended because their first message came too late.", num(p.SilentStreams))
	s.set("steelyard_xds_port_accept_errors_total", "Failed attempts to accept a connection.",
		num(p.AcceptErrors))
}

// collectSignals leaves out what is not taken in.
func collectSignals(s sink, t api.SignalTotals) {
	if t.AccessLog {
		each(s, labelResult, "steelyard_access_log_entries_total",
			"Access log entries, by result: counted, ignored (not watched by the Envoy) or unpaired.",
			map[string]uint64{"counted": api.Counted(t.Entries), "ignored": t.Entries.Ignored,
				"unpaired": t.Entries.Unpaired})
	}
	if t.LoadReports {
		s.set("steelyard_load_reports_total", "Load reports received.", num(t.Reports))
		for by, interval := range t.ReportIntervalsSeconds {
			s.with("counted_by", by).set("steelyard_load_report_interval_seconds",
				"Time between two load reports, by what counts the requests.", interval)
		}
	}
	if t.AccessLog && t.LoadReports {
		s.set("steelyard_reconciled_requests_total",
			"Requests that load reports added or removed.", num(t.Entries.Reconciled))
	}
	for source, streams := range t.Streams {
		of := s.with("source", source)
		of.set("steelyard_signal_streams", "Open streams over which Envoys report their requests.", num(streams.Open))
		each(of, labelResult, "steelyard_signal_streams_ended_total",
			"Streams of Envoys' reports that were refused or broken.",
			map[string]uint64{"refused": streams.Refused, "broken": streams.Broken})
	}
	if !t.AccessLog && !t.LoadReports {
		return
	}
	each(s, "mode", "steelyard_access_log_envoys", "Envoys that ever reported, by mode.",
		t.Envoys)
	s.set("steelyard_silent_envoys", "Envoys whose counts are not used because they stopped reporting.",
		num(t.Silent))
}

// collectCertificates has one series for authorities of one name, that of the last to expire.
func collectCertificates(s sink, all []api.Certificate, now time.Time) {
	type labels struct{ use, file, subject string }
	last := map[labels]api.Time{}
	// They are in the order of their end.
	for _, c := range api.Limit(conditions.CurrentCertificates(all, now), conditions.MaxCertificates) {
		if !c.NotAfter.IsZero() {
			last[labels{label(c.Use), label(c.File), label(c.Subject)}] = c.NotAfter
		}
	}
	for l, at := range last {
		s.with("use", l.use, "file", l.file, "subject", l.subject).set("steelyard_certificate_expiry_timestamp_seconds",
			"Unix time at which a certificate, or the first of its chain, expires.", unixTime(at))
	}
}

// collectRefusals has what was refused on both listeners, and the Envoys that disconnected.
func collectRefusals(s sink, status *api.Status, state *current.Snapshot) {
	for _, h := range status.RefusedHandshakes {
		s.with(labelReason, h.Reason).set("steelyard_refused_handshakes_total",
			"Failed TLS handshakes on the xDS port.", num(h.Count))
	}
	s.set("steelyard_gone_envoys", "Envoys that vanished in the last ten minutes and have not returned.",
		num(len(status.GoneEnvoys)))
	for _, d := range status.XDSAccess.Denied {
		s.with("kind", d.Kind).set("steelyard_xds_denied_total",
			"Streams that xds.clients does not allow: stream, watch or report.",
			num(d.Count))
	}
	s.set("steelyard_admin_refused_requests_total", "Requests refused because of their Host.",
		num(state.Refused.Count))
	for _, d := range state.Access.Denied {
		s.with(labelReason, d.Reason).set("steelyard_admin_denied_requests_total",
			"Requests to the admin listener that were denied.",
			num(d.Count))
	}
}

// collectReplicas has no series of the only replica.
func collectReplicas(s sink, r api.Replicas) {
	if !r.Enabled {
		return
	}
	states := map[api.ReplicaState]int{api.ReplicaLive: 0, api.ReplicaGone: 0, api.ReplicaUnreachable: 0}
	var oldest api.Number
	for _, o := range r.Others {
		states[o.State]++
		if age := o.AgeSeconds; o.State == api.ReplicaLive && age.Or(0) >= oldest.Or(0) {
			oldest = age
		}
	}
	s.set("steelyard_replicas_connected", "1 while the messages of all other replicas that may run arrive.",
		oneIf(r.Connected))
	each(s, "state", "steelyard_replicas", "Other replicas by state: live, gone or unreachable.", states)
	s.set("steelyard_replica_message_age_seconds", "Age of the last message of the replica that is silent for longest.",
		oldest)
	m := r.Messages
	each(s, labelResult, "steelyard_replica_messages_total", "Messages between replicas.",
		map[string]uint64{
			"sent": m.Sent, "failed": m.Failed, "received": m.Received, "lost": m.Lost, "stale": m.Stale,
			"foreign": m.Foreign, "invalid": m.Invalid, "refused": m.Refused})
	each(s, labelResult, "steelyard_replica_shared_prompts_total",
		"Learned prompts that replicas send each other: sent or left_out.",
		map[string]uint64{"sent": m.Prompts.Sent, "left_out": m.Prompts.LeftOut})
}
