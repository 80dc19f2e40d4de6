import { Injectable } from '@nestjs/common';
import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, Config } from '@rookery/platform';
import { EventStore } from '@rookery/rooms';
import { WrongAnswer } from './candidates.js';
import { PduChecker } from './pdu-checker.js';
import { authEventsOutside, type ProvenState, proveState } from './room-proof.js';
import { stateLimitsOf } from './state-limits.js';

/**
 * For how long a state is checked at most, milliseconds: one that names thousands of servers that do not exist, each to be
 * asked for its keys, must not lie in memory for hours.
 */
const checkingLimitMs = 10 * 60_000;

/** The state of a room as it comes over the wire. */
interface ToldState {
  readonly state: unknown;
  readonly authChain: unknown;
}

/** Reads the state of rooms that other servers tell, and believes nothing of it without proof. */
@Injectable()
export class RemoteState {
  constructor(
    private readonly checker: PduChecker,
    private readonly events: EventStore,
    private readonly clock: Clock,
    private readonly config: Config,
  ) {}

  /** @throws WrongAnswer when it cannot be the state of that room */
  async read(server: string, told: ToldState, rules: RoomVersionRules, roomId: string): Promise<ProvenState> {
    const { maxEvents } = stateLimitsOf(this.config);
    const [state, authChain] = [told.state, told.authChain].map((list) => {
      if (!Array.isArray(list)) throw new WrongAnswer(server, 'no list of events');
      if (list.length > maxEvents) throw new WrongAnswer(server, 'more state than is taken of a room');
      return list as JsonObject[];
    }) as [JsonObject[], JsonObject[]];
    const untilMs = this.clock.monotonicMs() + checkingLimitMs;
    const goOn = (): void => {
      if (this.clock.monotonicMs() >= untilMs) throw new WrongAnswer(server, 'its state takes too long to be checked');
    };
    return this.prove(
      server,
      {
        state: await this.checker.sound(state, rules, roomId, { goOn }),
        authChain: await this.checker.sound(authChain, rules, roomId, { goOn }),
      },
      rules,
    );
  }

  /**
   * What was proven, with auth events of an event that are known here: whoever leaves members out need not tell which membership a
   * user had before.
   */
  async withAuthOf(proven: ProvenState, { roomId, authEventIds }: RoomEvent): Promise<ProvenState> {
    const missing = authEventIds.filter((id) => !proven.events.has(id));
    if (missing.length === 0) return proven;
    const events = new Map(proven.events);
    for (const [id, { event, rejectedReason }] of await this.events.many(missing))
      if (rejectedReason === undefined && event.roomId === roomId) events.set(id, event);
    return { ...proven, events };
  }

  /** The same for events whose hashes and signatures were checked. @throws WrongAnswer */
  async prove(
    server: string,
    told: { readonly state: readonly RoomEvent[]; readonly authChain: readonly RoomEvent[] },
    rules: RoomVersionRules,
  ): Promise<ProvenState> {
    const known = new Map<string, RoomEvent>();
    const outside = await authEventsOutside([...told.authChain, ...told.state]);
    for (const [id, stored] of await this.events.many(outside)) {
      if (stored.rejectedReason === undefined) known.set(id, stored.event);
    }
    const proven = await proveState(told, rules.version, known);
    if ('wrong' in proven) throw new WrongAnswer(server, proven.wrong);
    return proven;
  }
}
