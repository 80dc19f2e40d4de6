import { MatrixError } from '@rookery/matrix-types';
import { UserHooks } from '@rookery/users';
import { RecordingLogger } from '@rookery/testing';
import type { LeaveService } from '../membership/leave.service.js';
import type { RoomForgetting } from '../membership/room-forgetting.js';
import type { MembershipReader } from '../reading/membership-reader.js';
import { LeaveOnDeactivation } from './leave-on-deactivation.js';

const userId = '@a:home.test';

describe('the end of an account', () => {
  let logger: RecordingLogger;
  let hooks: UserHooks;
  /** By room: whether the user is in it, or has left it, and whether it is forgotten. */
  let rooms: Map<string, { membership: string; forgotten: boolean }>;
  let leave: (roomId: string) => void;

  beforeEach(() => {
    logger = new RecordingLogger();
    hooks = new UserHooks(logger);
    rooms = new Map(Array.from({ length: 100 }, (_, n) => [`!r${n}`, { membership: 'join', forgotten: false }]));
    const leaving = new LeaveOnDeactivation(
      hooks,
      {
        roomsOf: async (_: string, memberships: readonly string[]) =>
          [...rooms]
            .map(([roomId, room]) => ({ roomId, ...room }))
            .filter((one) => memberships.includes(one.membership)),
      } as unknown as MembershipReader,
      {
        leave: async (_: object, roomId: string) => {
          leave(roomId);
          rooms.get(roomId)!.membership = 'leave';
        },
      } as unknown as LeaveService,
      {
        forgetLeft: async (_: string, roomId: string) => (rooms.get(roomId)!.forgotten = true),
      } as unknown as RoomForgetting,
      logger,
    );
    leaving.onModuleInit();
  });
  const end = (reopened?: AbortSignal): Promise<boolean> =>
    hooks.deactivated.afterCommit({ userId, erase: false, byAdmin: false, ...(reopened && { reopened }) });
  const stillIn = (): string[] => [...rooms.keys()].filter((roomId) => rooms.get(roomId)!.membership === 'join');
  const remembered = (): string[] => [...rooms.keys()].filter((roomId) => !rooms.get(roomId)!.forgotten);

  it('leaves no further room once the account is open again', async () => {
    const reopened = new AbortController();
    let left = 0;
    leave = () => {
      if (++left === 20) reopened.abort();
    };
    await end(reopened.signal);
    // Those that were being left just then are.
    expect(left).toBeLessThan(30);
    expect(await end()).toBe(true);
    expect([stillIn(), remembered()]).toEqual([[], []]);
  });

  it('leaves all rooms but those that cannot be left, and is not complete where that may change', async () => {
    leave = (roomId) => {
      if (roomId === '!r3') throw new TypeError('a mistake');
      if (roomId === '!r5') throw MatrixError.limitExceeded(1_000);
      if (roomId === '!r7') throw MatrixError.forbidden('No');
    };
    expect(await end()).toBe(false);
    expect(stillIn()).toEqual(['!r3', '!r5', '!r7']);
    leave = (roomId) => {
      if (roomId === '!r7') throw MatrixError.forbidden('No');
    };
    // What refuses would do so again.
    expect(await end()).toBe(true);
    expect(stillIn()).toEqual(['!r7']);
  });

  it('forgets what was left before a crash', async () => {
    leave = () => undefined;
    rooms = new Map([
      ['!crashed', { membership: 'leave', forgotten: false }],
      ['!banned', { membership: 'ban', forgotten: false }],
    ]);
    expect(await end()).toBe(true);
    expect(remembered()).toEqual([]);
  });
});
