import { Injectable } from '@nestjs/common';
import { MembershipReader, RoomHeroes, RoomStateReader, type StateDelta } from '@rookery/rooms';
import type { JsonObject } from '@rookery/matrix-types';
import { stateKeyOf } from '@rookery/state-res';
import type { SyncContext } from '../sync-context.js';
import type { RoomEntry } from './room-list.js';

/** Types whose change may change a room's summary. */
const summaryTypes: ReadonlySet<string> = new Set(['m.room.member', 'm.room.name', 'm.room.canonical_alias']);

/** Member counts and heroes. */
@Injectable()
export class RoomSummaries {
  constructor(
    private readonly memberships: MembershipReader,
    private readonly heroes: RoomHeroes,
    private readonly state: RoomStateReader,
  ) {}

  /**
   * Summaries of the joined rooms where they may have changed. Heroes are only named where a room has neither name nor
   * alias.
   * @spec client-server-api#get_matrixclientv3sync
   */
  async read(
    entries: readonly RoomEntry[],
    deltas: ReadonlyMap<string, readonly StateDelta[]>,
    context: SyncContext,
  ): Promise<Map<string, JsonObject>> {
    const rooms = entries
      .filter((entry) => entry.section === 'join')
      .filter(
        (entry) =>
          entry.fresh ||
          context.fullState ||
          deltas.get(entry.roomId)?.some((delta) => summaryTypes.has(delta.type)) === true,
      )
      .map((entry) => entry.roomId);
    if (rooms.length === 0) return new Map();
    const [counts, names] = await Promise.all([
      this.memberships.counts(rooms),
      this.state.currentIdsOf(rooms, {
        types: [
          ['m.room.name', ''],
          ['m.room.canonical_alias', ''],
        ],
      }),
    ]);
    const nameless = rooms.filter((roomId) => {
      const state = names.get(roomId);
      return (
        state?.has(stateKeyOf('m.room.name', '')) !== true &&
        state?.has(stateKeyOf('m.room.canonical_alias', '')) !== true
      );
    });
    const heroes = await this.heroes.of(nameless, context.userId);
    return new Map(
      rooms.map((roomId) => {
        const named = heroes.get(roomId);
        return [
          roomId,
          {
            'm.joined_member_count': counts.get(roomId)?.joined ?? 0,
            'm.invited_member_count': counts.get(roomId)?.invited ?? 0,
            ...(named === undefined ? {} : { 'm.heroes': named }),
          },
        ];
      }),
    );
  }
}
