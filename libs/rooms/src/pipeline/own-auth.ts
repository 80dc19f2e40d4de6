import { overlongKey, type RoomEvent } from '@rookery/events';
import { authStateOf, checkAuth, checkAuthEvents, restsUpon } from '@rookery/state-res';

/** What is known of an event that another one rests upon. */
export interface KnownAuth {
  readonly event: RoomEvent;
  readonly rejectedReason: string | undefined;
}

/** What an event's own auth events say about it. */
export interface OwnAuth {
  /** Those of them that are not known. */
  readonly missing: string[];
  readonly verdict: ReturnType<typeof checkAuth>;
}

/**
 * Judges an event by its own auth events.
 * @spec server-server-api#checks-performed-on-receipt-of-a-pdu
 */
export function judgeByOwnAuth(event: RoomEvent, known: (eventId: string) => KnownAuth | undefined): OwnAuth {
  const overlong = overlongKey(event);
  const missing: string[] = [];
  const rejected = new Set<string>();
  const found: RoomEvent[] = [];
  for (const id of restsUpon(event)) {
    const entry = known(id);
    if (!entry) missing.push(id);
    else {
      found.push(entry.event);
      if (entry.rejectedReason !== undefined) rejected.add(id);
    }
  }
  const named = found.filter((auth) => event.authEventIds.includes(auth.eventId));
  let verdict = checkAuthEvents(event, named, { rejected });
  if (verdict.allowed) verdict = checkAuth(event, authStateOf(found));
  if (overlong) verdict = { allowed: false, rule: 'size', reason: `${overlong} is longer than 255 bytes` };
  return { missing, verdict };
}
