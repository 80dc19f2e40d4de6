import { Codes, defineModule, DROP_SILENTLY, NOT_SPAM } from '@rookery/module-api';
import { parseConfig } from './config.js';

/** Decides who may invite whom: by user, by server, by whether they share a room. Administrators may always. */
export default defineModule({
  name: 'invite-policy',
  parseConfig,
  register(api, { rules, otherwise, message }) {
    api.registerSpamCheckerCallbacks({
      async userMayInvite(inviter, invitee, _roomId, context) {
        if (context.isAdmin) return NOT_SPAM;
        let shared: boolean | undefined;
        let action = otherwise;
        for (const rule of rules) {
          if (rule.from && !rule.from.test(inviter)) continue;
          if (rule.to && !rule.to.test(invitee)) continue;
          if (rule.sharedRoom !== undefined) {
            shared ??= await api.usersShareRoom(inviter, invitee);
            if (shared !== rule.sharedRoom) continue;
          }
          action = rule.action;
          break;
        }
        if (action === 'allow') return NOT_SPAM;
        api.log.info('Invite refused', { inviter, invitee, action });
        return action === 'drop' ? DROP_SILENTLY : { errcode: Codes.FORBIDDEN, message };
      },
    });
  },
});
