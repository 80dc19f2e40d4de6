import {
  addSignatures,
  hasValidSignature,
  InvalidEventError,
  parsePdu,
  type RoomEvent,
  signingKeyIds,
} from '@rookery/events';
import type { KeyRing } from '@rookery/federation-client';
import type { Signatures } from '@rookery/matrix-types';
import { WrongAnswer } from './candidates.js';

/**
 * An event of this server with the valid signatures that another server gave for it; of whatever else came back with it nothing is taken.
 * @param told the event as that server sent it back; must be the same
 * @throws WrongAnswer when it is not, or there is none, or no room for it
 */
export async function withSignatureOf(
  keys: KeyRing,
  server: string,
  own: RoomEvent,
  told: unknown,
): Promise<RoomEvent> {
  const theirs = meant(server, () => parsePdu(told, own.rules, { roomId: own.roomId }));
  if (theirs.eventId !== own.eventId) throw new WrongAnswer(server, 'another event came back');
  const valid: Record<string, string> = {};
  const signatures = (theirs.pdu['signatures'] as Signatures)[server];
  for (const keyId of signingKeyIds(theirs, server)) {
    const known = await keys.keyOf(server, keyId, own.originServerTs);
    if (known && hasValidSignature(theirs, server, keyId, known.key)) valid[keyId] = signatures![keyId]!;
  }
  if (Object.keys(valid).length === 0) throw new WrongAnswer(server, 'the event came back without a valid signature');
  return meant(server, () => addSignatures(own, { [server]: valid }));
}

function meant(server: string, make: () => RoomEvent): RoomEvent {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof InvalidEventError)) throw error;
    throw new WrongAnswer(server, `the event that came back: ${error.message}`);
  }
}
