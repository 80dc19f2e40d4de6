import { defineModule, MatrixError, type Permission } from '@rookery/module-api';
import { canBeHeld, parseConfig } from './config.js';
import { type Hold, Holds } from './holds.js';
import { initialState, kindsOf } from './kinds.js';

const path = '/_synapse/client/retention-policy/holds';
const retention = 'm.room.retention';
const longestReason = 1_000;

/** Gives new rooms the lifetime of messages that the settings say, and has nothing removed that is held. */
export default defineModule({
  name: 'retention-policy',
  parseConfig,
  register(api, { rooms, changes, holds: fixed }) {
    const holds = new Holds(api, fixed);
    const unlessHeld = (hold: Hold | undefined): Permission =>
      hold === undefined || { errcode: 'M_FORBIDDEN', message: `${hold.id} is held: ${hold.reason}` };

    api.registerThirdPartyRulesCallbacks({
      onCreateRoom(_requester, body) {
        const kinds = kindsOf(body);
        const policy = rooms.find(({ kind }) => kinds.has(kind));
        const state = initialState(body);
        const wished = changes === 'allow' && state.some(({ type }) => type === retention);
        if (policy === undefined || wished) return;
        const others = state.filter(({ type }) => type !== retention);
        const content = policy.maxLifetimeMs === undefined ? {} : { max_lifetime: policy.maxLifetimeMs };
        return { ...body, initial_state: [...others, { type: retention, state_key: '', content }] };
      },
      checkEventAllowed({ type, stateKey, eventId }, _state, { isAdmin, duringRoomCreation }) {
        // What is signed elsewhere cannot be undone here.
        if (type !== retention || stateKey === undefined || eventId !== undefined) return true;
        return changes === 'allow' || isAdmin || duringRoomCreation
          ? true
          : { allowed: false, message: 'How long messages live is up to this server' };
      },
      checkCanRemoveHistory: async (roomId) => unlessHeld(await holds.ofRoom(roomId)),
      checkCanShutdownRoom: async (_userId, roomId) => unlessHeld(await holds.ofRoom(roomId)),
      checkCanDeactivateUser: async (userId) => unlessHeld(await holds.ofUser(userId)),
    });

    const asAdmin = async (request: Request): Promise<string> => {
      const { userId, isAdmin } = await api.getUserByReq(request);
      if (!isAdmin) throw new MatrixError(403, 'M_FORBIDDEN', 'Only for administrators');
      return userId;
    };
    api.registerWebResource(path, async (request) => {
      await asAdmin(request);
      return Response.json({ holds: await holds.list() });
    });
    api.registerWebResource(`${path}/:id`, async (request, { params }) => {
      const by = await asAdmin(request);
      const id = params['id'] ?? '';
      if (!canBeHeld(id)) throw new MatrixError(400, 'M_INVALID_PARAM', 'Not the id of a room or a user');
      if (request.method === 'DELETE') {
        if (!(await holds.release(id))) throw new MatrixError(404, 'M_NOT_FOUND', 'There is no such hold');
        api.log.warn('A hold was released', { id, by });
        return Response.json({});
      }
      if (request.method !== 'PUT') throw new MatrixError(405, 'M_UNRECOGNIZED', 'This is not possible');
      const { reason } = (await request.json().catch(() => ({}))) as { readonly reason?: unknown };
      if (typeof reason !== 'string' || reason === '' || reason.length > longestReason)
        throw new MatrixError(400, 'M_BAD_JSON', `reason is no text of at most ${longestReason} characters`);
      const isPlaced = await holds.place({ id, reason, by, ts: api.getCurrentTimeMsec() });
      if (!isPlaced) throw new MatrixError(400, 'M_LIMIT_EXCEEDED', 'Too much is held');
      api.log.warn('Something is held', { id, reason, by });
      return Response.json({});
    });
  },
});
