import { longestStickyMs } from '@rookery/events';
import { type InferQuery, param, queryOf } from '@rookery/http';

/** How events are sent other than at once, once and for good. */
export const sendQuery = queryOf({
  ts: param.integer('The time that the event is to have, milliseconds; for application services.'),
  'org.matrix.msc4140.delay': param.integer('How long to wait before sending, milliseconds (MSC4140).', { min: 1 }),
  'org.matrix.msc4354.sticky_duration_ms': param.integer('How long the event is sticky, milliseconds (MSC4354).', {
    max: longestStickyMs,
  }),
});

/** What {@link sendQuery} reads. */
export type SendQuery = InferQuery<typeof sendQuery>;
