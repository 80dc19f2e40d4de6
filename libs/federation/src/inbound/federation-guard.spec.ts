import type { ExecutionContext } from '@nestjs/common';
import { DeviceKeysForServersController } from '../devices/device-keys.controller.js';
import { RoomHistoryForServersController } from '../rooms/room-history.controller.js';
import { FederationGuard } from './federation-guard.js';
import type { FederationRateLimiter } from './federation-rate-limiter.js';
import type { RequestVerifier } from './request-verifier.js';

describe('the guard of routes for other servers', () => {
  /** What it does for a request, in order. */
  const stepsOf = async (handler: object): Promise<string[]> => {
    const steps: string[] = [];
    const verifier = {
      verify: async () => (steps.push('verify'), { origin: 'far.test', content: undefined }),
    } as unknown as RequestVerifier;
    const limiter = {
      enter: async (origin: string) => (steps.push(`enter ${origin}`), () => undefined),
    } as unknown as FederationRateLimiter;
    const inbound = { takeTurn: async () => void steps.push('turn') };
    const context = {
      switchToHttp: () => ({
        getRequest: () => ({ inbound }),
        getResponse: () => ({ raw: { once: () => undefined } }),
      }),
      getHandler: () => handler,
    } as unknown as ExecutionContext;
    await new FederationGuard(verifier, limiter).canActivate(context);
    return steps;
  };
  const history = RoomHistoryForServersController.prototype;
  const keys = DeviceKeysForServersController.prototype;

  it.each([
    ['state', history.state],
    ['state_ids', history.stateIds],
    ['event_auth', history.eventAuth],
    ['user/keys/query', keys.query],
  ])('has the large answers of %s made in turn, once it knows for whom', async (_, handler) => {
    expect(await stepsOf(handler)).toEqual(['verify', 'enter far.test', 'turn']);
  });

  it('does not have others wait', async () => {
    expect(await stepsOf(history.event)).toEqual(['verify', 'enter far.test']);
  });
});
