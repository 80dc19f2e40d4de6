import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import type { StateReader } from '@rookery/module-host';
import { EventStore, RoomStateReader } from '@rookery/rooms';
import { splitStateKey, stateKeyOf, type StateMap } from '@rookery/state-res';

/** States of rooms as modules look at them. */
@Injectable()
export class StatesAfterEvents {
  constructor(
    private readonly state: RoomStateReader,
    private readonly events: EventStore,
  ) {}

  /** The state of its room after an event; read when it is asked for. */
  of(eventId: string): StateReader {
    return new StateAfter(this.state, this.events, eventId);
  }
}

/** The state of a room after an event. */
class StateAfter implements StateReader {
  #whole: Promise<StateMap> | undefined;

  constructor(
    private readonly state: RoomStateReader,
    private readonly events: EventStore,
    private readonly eventId: string,
  ) {}

  async get(type: string, stateKey: string): Promise<RoomEvent | undefined> {
    const found = await (this.#whole ?? this.#ids({ types: [[type, stateKey]] }));
    const id = found.get(stateKeyOf(type, stateKey));
    return id === undefined ? undefined : (await this.#load([id]))[0];
  }

  async ofType(type: string): Promise<RoomEvent[]> {
    return this.#load(
      [...(await (this.#whole ??= this.#ids()))].flatMap(([key, id]) => (splitStateKey(key)[0] === type ? [id] : [])),
    );
  }

  async all(): Promise<RoomEvent[]> {
    return this.#load((await (this.#whole ??= this.#ids())).values());
  }

  async #ids(filter?: Parameters<RoomStateReader['idsAfter']>[1]): Promise<StateMap> {
    const states = await this.state.idsAfter([this.eventId], filter);
    return states.get(this.eventId) ?? new Map<string, string>();
  }

  async #load(ids: Iterable<string>): Promise<RoomEvent[]> {
    return [...(await this.events.events(ids)).values()];
  }
}
