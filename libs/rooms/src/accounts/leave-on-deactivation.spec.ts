import { SilentLogger } from '@rookery/platform';
import { UserHooks } from '@rookery/users';
import type { LeaveService } from '../membership/leave.service.js';
import type { RoomForgetting } from '../membership/room-forgetting.js';
import type { MembershipReader } from '../reading/membership-reader.js';
import { LeaveOnDeactivation } from './leave-on-deactivation.js';

it('leaves no further room once the account is open again', async () => {
  const logger = new SilentLogger();
  const hooks = new UserHooks(logger);
  const rooms = Array.from({ length: 100 }, (_, n) => ({ roomId: `!r${n}` }));
  const reopened = new AbortController();
  const left: string[] = [];
  const leaving = new LeaveOnDeactivation(
    hooks,
    { roomsOf: async () => rooms } as unknown as MembershipReader,
    {
      leave: async (_: object, roomId: string) => {
        if (left.push(roomId) === 20) reopened.abort();
      },
    } as unknown as LeaveService,
    { forget: async () => undefined } as unknown as RoomForgetting,
    logger,
  );
  leaving.onModuleInit();
  const event = { userId: '@a:home.test', erase: false, byAdmin: false };
  await hooks.deactivated.afterCommit({ ...event, reopened: reopened.signal });
  // Those that were being left just then are.
  expect(left.length).toBeLessThan(30);
  await hooks.deactivated.afterCommit(event);
  expect(left.length).toBeGreaterThanOrEqual(120);
});
