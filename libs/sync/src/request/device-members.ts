import { Injectable } from '@nestjs/common';
import type { SyncFilter } from '@rookery/matrix-types';
import { Config, Logger } from '@rookery/platform';
import { defineRpc, instanceOf, Rpc } from '@rookery/replication';
import { LazyMemberMemory } from './lazy-members.js';

/** Members whom an answer needs of a room, by user the id of the member event. */
export interface WantedMembers {
  readonly roomId: string;
  readonly wanted: ReadonlyMap<string, string>;
  /** The device is told of the room as if for the first time. */
  readonly anew: boolean;
}

/** Of the members that an answer needs those whom its device does not have, by room; they count as sent with that answer. */
export type TakeMembers = (
  rooms: readonly WantedMembers[],
) => Promise<ReadonlyMap<string, ReadonlyMap<string, string>>>;

/** What an answer left with a device, and it comes back with. */
export interface MembersPlace {
  /** Which answer it was: where in the events it ended, or a number of its own. */
  readonly answer: number;
  /** Number of the process that remembers; `undefined` where there is only one. */
  readonly home?: number | undefined;
}

/** What is asked of the process that remembers a device; maps as pairs. */
interface AskedMembers {
  readonly deviceKey: string;
  /** The answer that the device came back with; absent where that was said before. */
  readonly since?: number;
  /** The answer that will bring the members. */
  readonly upTo: number;
  readonly rooms: readonly { readonly roomId: string; readonly wanted: [string, string][]; readonly anew: boolean }[];
}

/** Users whose member events the device lacks, by room. To be told again does no harm: nobody waits long for it. */
const membersToSend = defineRpc<AskedMembers, Record<string, string[]>>('lazy_members', { timeoutMs: 1_000 });

/**
 * What devices were sent of lazy members. Of several processes one remembers a device: the one that answered when it began. The
 * device's token names that one, so that a client which keeps to a process asks no other, and one that does not is still sent a
 * member once. A process that is gone took what it remembered with it: members are sent again.
 * @spec client-server-api#lazy-loading-room-members
 */
@Injectable()
export class LazyMemberMemories {
  readonly #memory: LazyMemberMemory;

  constructor(
    private readonly rpc: Rpc,
    private readonly logger: Logger,
    config: Config,
  ) {
    this.#memory = new LazyMemberMemory(config);
    rpc.handle(membersToSend, async ({ deviceKey, since, upTo, rooms }) => {
      if (since !== undefined) this.#memory.confirm(deviceKey, since);
      const asked = rooms.map((room) => ({ ...room, wanted: new Map(room.wanted) }));
      return Object.fromEntries(
        [...takeFrom(this.#memory, deviceKey, asked, upTo)].map(([roomId, members]) => [roomId, [...members.keys()]]),
      );
    });
  }

  /** What is remembered of a device, for one answer. @param since what it comes with; absent where it begins anew */
  of(
    deviceKey: string,
    since: MembersPlace | undefined,
    filter: Pick<SyncFilter['room']['state'], 'lazyLoadMembers' | 'includeRedundantMembers'>,
  ): DeviceMembers {
    const mayRemember = filter.lazyLoadMembers && !filter.includeRedundantMembers;
    return new RememberedMembers(this.#memory, this.rpc, this.logger, deviceKey, since, mayRemember);
  }
}

/** What is remembered of a device, as one answer needs it. */
export interface DeviceMembers {
  /** Number of the process that remembers it, for the device's token; `undefined` where there is only one. */
  readonly home: number | undefined;
  /** The device begins anew, or comes back from where its last answer ended. Call it once, before anything is taken. */
  begin(): Promise<void>;
  /**
   * Of the members that are wanted those whom the device does not have, by room.
   * @param answer names the answer that brings them, as {@link MembersPlace.answer} does
   */
  take(rooms: readonly WantedMembers[], answer: number): ReturnType<TakeMembers>;
}

/** What this process remembers of a device, or another one. */
class RememberedMembers implements DeviceMembers {
  home: number | undefined;

  constructor(
    private readonly memory: LazyMemberMemory,
    private readonly rpc: Rpc,
    private readonly logger: Logger,
    private readonly deviceKey: string,
    private readonly since: MembersPlace | undefined,
    private readonly mayRemember: boolean,
  ) {
    this.home = since?.home ?? rpc.processNumber;
  }

  async begin(): Promise<void> {
    const { memory, deviceKey, since } = this;
    if (since === undefined) return memory.forget(deviceKey);
    if (!this.mayRemember && this.home !== this.rpc.processNumber) return;
    const came = { deviceKey, since: since.answer, upTo: since.answer, rooms: [] };
    await this.#atHome(
      async (there) => void (await this.rpc.call(membersToSend, came, instanceOf(there))),
      () => memory.confirm(deviceKey, since.answer),
    );
  }

  async take(rooms: readonly WantedMembers[], answer: number): ReturnType<TakeMembers> {
    if (!this.mayRemember || rooms.length === 0) return new Map(rooms.map(({ roomId, wanted }) => [roomId, wanted]));
    return this.#atHome(
      (there) => this.#takeThere(there, rooms, answer),
      () => takeFrom(this.memory, this.deviceKey, rooms, answer),
    );
  }

  /** By the process that remembers the device; by this one where that cannot be asked. */
  async #atHome<T>(there: (number: number) => Promise<T>, here: () => T): Promise<T> {
    const own = this.rpc.processNumber;
    if (this.home === undefined || this.home === own) return here();
    try {
      return await there(this.home);
    } catch (err) {
      this.logger.debug('What a device has of lazy members is not known any more', { process: this.home, err });
      this.home = own;
      return here();
    }
  }

  async #takeThere(there: number, asked: readonly WantedMembers[], upTo: number): ReturnType<TakeMembers> {
    const { deviceKey } = this;
    const rooms = asked.map(({ roomId, wanted, anew }) => ({ roomId, wanted: [...wanted], anew }));
    const answer = await this.rpc.call(membersToSend, { deviceKey, upTo, rooms }, instanceOf(there));
    const taken = asked.map(({ roomId, wanted }) => {
      const missing = new Set(answer[roomId]);
      return [roomId, new Map([...wanted].filter(([userId]) => missing.has(userId)))] as const;
    });
    return new Map(taken);
  }
}

function takeFrom(
  memory: LazyMemberMemory,
  deviceKey: string,
  rooms: readonly WantedMembers[],
  upTo: number,
): ReadonlyMap<string, ReadonlyMap<string, string>> {
  return new Map(
    rooms.map(({ roomId, wanted, anew }) => [roomId, memory.take(deviceKey, roomId, wanted, upTo, { anew })]),
  );
}
