import { Injectable } from '@nestjs/common';
import { InvalidEventError, parsePdu, type RoomEvent, type RoomVersionRules, soundForm } from '@rookery/events';
import { KeyRing } from '@rookery/federation-client';
import { Logger } from '@rookery/platform';
import { EventStore } from '@rookery/rooms';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** How events are looked at. */
export interface CheckingOptions {
  /** Asked before each piece of a long list; what it throws ends the work. */
  readonly goOn?: () => void;
  /** The server that gives them out, where it was asked because of what it had sent: it could have anything looked for. */
  readonly sender?: string;
}

/** Events that are looked at before others get a turn. */
const chunkSize = 200;

/**
 * The first checks of what other servers give out as events: format, signatures, content hash. Authorization comes later.
 * @spec server-server-api#checks-performed-on-receipt-of-a-pdu
 */
@Injectable()
export class PduChecker {
  readonly #logger: Logger;

  constructor(
    private readonly keys: KeyRing,
    private readonly events: EventStore,
    logger: Logger,
  ) {
    this.#logger = logger.child('federation');
  }

  /**
   * The sound ones among PDUs of one room, in their order, each once. Whose content was changed on the way is redacted; what
   * this server has already comes back as it is stored here, so that nobody can give another text to a known id.
   * @param pdus from `requestExactJson`: plain values in whatever shape
   */
  async sound(
    pdus: readonly unknown[],
    rules: RoomVersionRules,
    roomId: string,
    { goOn, sender }: CheckingOptions = {},
  ): Promise<RoomEvent[]> {
    const sound = new Map<string, RoomEvent>();
    for (let start = 0; start < pdus.length; start += chunkSize) {
      goOn?.();
      if (start > 0) await nextTurn();
      const parsed = new Map<string, RoomEvent>();
      for (const pdu of pdus.slice(start, start + chunkSize)) {
        const event = this.#parse(pdu, rules, roomId);
        if (event && !sound.has(event.eventId) && !parsed.has(event.eventId)) parsed.set(event.eventId, event);
      }
      const stored = await this.events.many(parsed.keys());
      const fresh = [...parsed.values()].filter(({ eventId }) => !stored.has(eventId)).map(soundForm);
      const verdicts = fresh.length === 0 ? [] : await this.keys.verifyEvents(fresh, sender);
      const valid = new Map<string, RoomEvent>();
      for (const [index, event] of fresh.entries()) {
        const verdict = verdicts[index];
        if (verdict?.valid) valid.set(event.eventId, event);
        else this.#logger.debug('An event without the right signatures is ignored', { roomId, event: event.eventId });
      }
      for (const id of parsed.keys()) {
        const event = stored.get(id)?.event ?? valid.get(id);
        if (event?.roomId === roomId) sound.set(id, event);
      }
    }
    return [...sound.values()];
  }

  #parse(pdu: unknown, rules: RoomVersionRules, roomId: string): RoomEvent | undefined {
    try {
      return parsePdu(pdu, rules, { roomId });
    } catch (error) {
      if (!(error instanceof InvalidEventError)) throw error;
      this.#logger.debug('What another server gave out is no event', { roomId, reason: error.message });
      return undefined;
    }
  }
}
