-- name: passes
-- Whether a node passes the filters of a question; NULL: not asked for. It stands wherever another
-- statement says PASSES. Statements with it are planned anew each time, so that of all this there
-- remains what was asked for.
((%(source)s::text IS NULL OR source = %(source)s)
 AND (%(source_like)s::text IS NULL OR source LIKE %(source_like)s)
 AND (%(updated_since)s::timestamptz IS NULL OR updated_at >= %(updated_since)s)
 AND (%(updated_before)s::timestamptz IS NULL OR updated_at < %(updated_before)s)
 AND (%(occurred_since)s::timestamptz IS NULL OR occurred_at >= %(occurred_since)s)
 AND (%(occurred_before)s::timestamptz IS NULL OR occurred_at < %(occurred_before)s)
 AND (%(tags)s::text[] IS NULL OR tags @> %(tags)s)
 AND (%(kinds)s::text[] IS NULL OR kind = ANY(%(kinds)s))
 AND (%(standing_ids)s::text[] IS NULL OR standing_id = ANY(%(standing_ids)s)))
