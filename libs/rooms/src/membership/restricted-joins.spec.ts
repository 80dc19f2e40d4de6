import type { Database } from '@rookery/database';
import { roomVersionRules } from '@rookery/events';
import type { Config } from '@rookery/platform';
import type { RoomStateReader } from '../state/room-state-reader.js';
import { RestrictedJoins } from './restricted-joins.js';

describe('a restricted join of a user of another server', () => {
  const allowed = ['!a:far.test', '!b:far.test'];

  /** Asks for somebody who is in no room that is known here. @param ours allowed rooms in which this server is @param partial those of which not all members are known */
  function asking(ours: readonly string[], partial: readonly string[]): Promise<unknown> {
    const database = {
      query: async () => ours.map((room_id) => ({ room_id })),
      get: async () => undefined,
      dialect: { anyOf: () => '' },
    } as unknown as Database;
    const allow = allowed.map((room_id) => ({ type: 'm.room_membership', room_id }));
    const event = { content: { join_rule: 'restricted', allow }, rules: roomVersionRules('11') };
    const state = {
      currentEvent: async () => ({ event }),
      isWhole: (roomId: string) => !partial.includes(roomId),
    } as unknown as RoomStateReader;
    return new RestrictedJoins(database, state, {} as Config).authorizerForOthers('!r:here.test', '@eve:far.test');
  }

  it.each([
    ['for good where all members of the allowed rooms are known', allowed, [], [403, 'M_FORBIDDEN']],
    ['not for good where some are not', allowed, ['!b:far.test'], [400, 'M_UNABLE_TO_AUTHORISE_JOIN']],
    ['not for good where a room is not known', ['!a:far.test'], [], [400, 'M_UNABLE_TO_AUTHORISE_JOIN']],
  ])('is refused %s', async (_, ours, partial, [status, errcode]) => {
    await expect(asking(ours, partial)).rejects.toMatchObject({ status, errcode });
  });
});
