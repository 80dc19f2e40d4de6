import { longestStickyMs } from '@rookery/events';
import { type InboundRequest, queryInteger } from '@rookery/http';

const delayParameter = 'org.matrix.msc4140.delay';
const stickyParameter = 'org.matrix.msc4354.sticky_duration_ms';

/** How long to wait before sending, milliseconds (MSC4140). @throws MatrixError 400 `M_INVALID_PARAM` */
export const delayIn = (request: InboundRequest): number | undefined =>
  queryInteger(request, delayParameter, { min: 1 });

/** Whether the event is to be sent later. @throws MatrixError 400 `M_INVALID_PARAM` */
export const isDelayed = (request: InboundRequest): boolean => queryInteger(request, delayParameter) !== undefined;

/** How long the event is to be sticky, milliseconds (MSC4354). @throws MatrixError 400 `M_INVALID_PARAM` */
export const stickyIn = (request: InboundRequest): number | undefined =>
  queryInteger(request, stickyParameter, { min: 0, max: longestStickyMs });
