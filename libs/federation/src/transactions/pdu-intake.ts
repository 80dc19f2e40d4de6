import { Injectable } from '@nestjs/common';
import { InvalidEventError, parsePdu, type RoomEvent, soundForm } from '@rookery/events';
import { KeyRing } from '@rookery/federation-client';
import { domainOf, isJsonObject, isValidRoomId } from '@rookery/matrix-types';
import { callbackContext, ModuleDispatcher, toModuleEvent } from '@rookery/module-host';
import { Logger } from '@rookery/platform';
import { EventStore } from '@rookery/rooms';
import { OutOfBandLeaves } from '../membership/out-of-band-leaves.js';
import { PduRooms, type RoomFacts } from './pdu-rooms.js';

/** What became of each PDU of a transaction, by event id; the texts are for people. */
export type PduResults = Map<string, { error?: string }>;

/** What a transaction's PDUs come to. */
export interface Intake {
  readonly results: PduResults;
  /** To be put into their rooms, in the order of the transaction. */
  readonly wanted: readonly RoomEvent[];
  /** Whether anything came of the PDUs: some are wanted, or have ended a membership. Without it they would get the same results again. */
  readonly haveTaken: boolean;
}

const verdicts: Readonly<Record<'missing' | 'unknownKey' | 'expiredKey' | 'wrong', string>> = {
  missing: 'has not signed it',
  unknownKey: 'has signed it with a key that cannot be had',
  expiredKey: 'has signed it with a key that did not hold any more',
  wrong: 'has not signed it rightly',
};

/**
 * The first checks of PDUs that arrive: what can be said of each without its room's history.
 * @spec server-server-api#checks-performed-on-receipt-of-a-pdu
 */
@Injectable()
export class PduIntake {
  readonly #logger: Logger;

  constructor(
    private readonly keys: KeyRing,
    private readonly events: EventStore,
    private readonly rooms: PduRooms,
    private readonly leaves: OutOfBandLeaves,
    private readonly modules: ModuleDispatcher,
    logger: Logger,
  ) {
    this.#logger = logger.child('federation');
  }

  /** @param pdus as they came: anything at all */
  async check(origin: string, pdus: readonly unknown[]): Promise<Intake> {
    const results: PduResults = new Map();
    const rooms = await this.rooms.factsOf(origin, [...new Set(pdus.flatMap((pdu) => roomIdIn(pdu) ?? []))]);
    const parsed = new Map<string, RoomEvent>();
    for (const pdu of pdus) {
      const event = this.#parse(origin, pdu, rooms, results);
      if (event && !results.has(event.eventId)) parsed.set(event.eventId, event);
    }
    const stored = await this.events.many(parsed.keys());
    // Its own server could have changed it since; everybody keeps what the signatures cover.
    const fresh = [...parsed.values()].filter(({ eventId }) => stored.get(eventId)?.outlier ?? true).map(soundForm);
    const ours: RoomEvent[] = [];
    for (const event of fresh) {
      // Nobody's keys are looked for because of rooms in which nobody here is.
      if (rooms.get(event.roomId)!.isOurs || (await this.leaves.isOne(event))) ours.push(event);
      else results.set(event.eventId, { error: notHere });
    }
    const checked = await this.keys.verifyEvents(ours, origin);
    const wanted: RoomEvent[] = [];
    let haveTaken = false;
    for (const [index, event] of ours.entries()) {
      const verdict = checked[index]!;
      if (!verdict.valid) {
        results.set(event.eventId, { error: `${verdict.serverName} ${verdicts[verdict.reason]}` });
        continue;
      }
      const refusal = await this.#refusal(origin, event, rooms.get(event.roomId)!);
      if (refusal === undefined) wanted.push(event);
      if (refusal === undefined || refusal === '') haveTaken = true;
      else results.set(event.eventId, { error: refusal });
    }
    for (const id of parsed.keys()) if (!results.has(id)) results.set(id, {});
    return { results, wanted, haveTaken };
  }

  /** The event, if it may be looked at any further. */
  #parse(
    origin: string,
    pdu: unknown,
    rooms: ReadonlyMap<string, RoomFacts>,
    results: PduResults,
  ): RoomEvent | undefined {
    const room = rooms.get(roomIdIn(pdu) ?? '');
    // Without the room's version nobody can say what the event's id is.
    if (!room) return undefined;
    let event: RoomEvent;
    try {
      event = parsePdu(pdu, room.rules);
    } catch (error) {
      if (!(error instanceof InvalidEventError)) throw error;
      const id = error.eventId ?? (isJsonObject(pdu) && room.rules.eventFormat === 'v1' ? pdu['event_id'] : undefined);
      if (typeof id === 'string' && id.length <= 255) results.set(id, { error: `This is no event: ${error.reason}` });
      this.#logger.debug('A server sent what is no event', { origin, reason: error.reason });
      return undefined;
    }
    const problem = !room.mayTakePart
      ? 'Your server may not take part in this room'
      : domainOf(event.sender) === origin || isRelayed(event)
        ? undefined
        : 'Events are taken from the server of their sender only';
    if (problem !== undefined) results.set(event.eventId, { error: problem });
    return problem === undefined ? event : undefined;
  }

  /** Why an event is not wanted; empty when that is nobody's fault. */
  async #refusal(origin: string, event: RoomEvent, room: RoomFacts): Promise<string | undefined> {
    if (!room.isOurs) {
      return (await this.leaves.take(event)) ? '' : notHere;
    }
    if (!this.modules.has('shouldDropFederatedEvent')) return undefined;
    const context = callbackContext(undefined, { source: 'federation', origin });
    const verdict = await this.modules.gate('shouldDropFederatedEvent', context, toModuleEvent(event));
    if (verdict.allowed) return undefined;
    if (verdict.failed) return 'The event could not be judged';
    this.#logger.info('A module does not want an event of another server', {
      ...{ origin, room_id: event.roomId, event_id: event.eventId, module: verdict.module },
    });
    return '';
  }
}

const notHere = 'This server is not in the room';

const roomIdIn = (pdu: unknown): string | undefined => {
  const roomId = isJsonObject(pdu) ? pdu['room_id'] : undefined;
  return typeof roomId === 'string' && isValidRoomId(roomId) ? roomId : undefined;
};

/** Memberships that other servers helped with are sent on by those. */
const isRelayed = (event: RoomEvent): boolean => event.type === 'm.room.member' && event.stateKey !== undefined;
