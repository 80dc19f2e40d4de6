import {
  type CallbackContext,
  Codes,
  defineModule,
  DROP_SILENTLY,
  type EventVerdict,
  NOT_SPAM,
  type Refusal,
  type RegistrationBehavior,
  type SpamCheckerCallbacks,
} from '@rookery/module-api';
import { parseConfig, type Subject } from './config.js';

/** What the service answers. */
interface Answer {
  readonly verdict: 'allow' | 'deny' | 'drop' | 'shadow_ban';
  readonly refusal: Refusal;
}

/** Reads an answer; `undefined` for anything but an answer. */
function readAnswer(answer: unknown): Answer | undefined {
  if (typeof answer !== 'object' || answer === null) return undefined;
  const { verdict, errcode, message } = answer as Record<string, unknown>;
  if (verdict !== 'allow' && verdict !== 'deny' && verdict !== 'drop' && verdict !== 'shadow_ban') return undefined;
  const refusal: Refusal = {
    errcode: typeof errcode === 'string' && /^[\w.]{1,100}$/.test(errcode) ? errcode : Codes.FORBIDDEN,
    ...(typeof message === 'string' ? { message: message.slice(0, 500) } : {}),
  };
  return { verdict, refusal };
}

/** Asks a remote service whether events, invites, joins, registrations and logins are spam. */
export default defineModule({
  name: 'http-antispam',
  parseConfig,
  register(api, { url, token, ask, onFailure, timeoutMs }) {
    const failures = api.metrics.counter('failures_total', 'Questions that the service did not answer.');
    const failed: Answer = {
      verdict: onFailure,
      refusal: { message: 'This cannot be checked right now; try again later' },
    };

    async function question(subject: Subject, details: object, context: CallbackContext): Promise<Answer> {
      const { ip, userAgent, source, origin } = context;
      const body = {
        subject,
        server: api.serverName,
        ...details,
        context: { ip, user_agent: userAgent, source, origin },
      };
      const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` };
      try {
        const answer = readAnswer(await api.httpClient.postJsonGetJson(url, body, { headers, timeoutMs }));
        if (answer) return answer;
        api.log.warn('The service gave an answer that means nothing', { subject });
      } catch (error) {
        api.log.warn('The service did not answer', { subject, err: error });
      }
      failures.inc();
      return failed;
    }

    const verdictOf = ({ verdict, refusal }: Answer): EventVerdict => {
      if (verdict === 'allow') return NOT_SPAM;
      return verdict === 'deny' ? refusal : DROP_SILENTLY;
    };
    /** Where nothing can be dropped, dropping is refusing. */
    const strictVerdictOf = ({ verdict, refusal }: Answer): typeof NOT_SPAM | Refusal =>
      verdict === 'allow' ? NOT_SPAM : refusal;
    const behaviorOf = ({ verdict }: Answer): RegistrationBehavior => {
      if (verdict === 'allow') return 'allow';
      return verdict === 'shadow_ban' ? 'shadowBan' : 'deny';
    };

    const callbacks: { readonly [S in Subject]: SpamCheckerCallbacks } = {
      event: {
        async checkEventForSpam({ eventId, roomId, type, stateKey, sender, content }, context) {
          const event = { event_id: eventId, room_id: roomId, type, state_key: stateKey, sender, content };
          return verdictOf(await question('event', { event }, context));
        },
      },
      invite: {
        userMayInvite: async (inviter, invitee, roomId, context) =>
          verdictOf(await question('invite', { inviter, invitee, room_id: roomId }, context)),
      },
      join: {
        userMayJoinRoom: async (userId, roomId, isInvited, context) =>
          strictVerdictOf(await question('join', { user_id: userId, room_id: roomId, is_invited: isInvited }, context)),
      },
      registration: {
        checkRegistrationForSpam: async (email, username, requests, provider, context) =>
          behaviorOf(
            await question(
              'registration',
              { username, email: email?.address, requests, auth_provider_id: provider },
              context,
            ),
          ),
      },
      login: {
        checkLoginForSpam: async (userId, deviceId, displayName, requests, provider, context) =>
          strictVerdictOf(
            await question(
              'login',
              { user_id: userId, device_id: deviceId, device_name: displayName, requests, auth_provider_id: provider },
              context,
            ),
          ),
      },
    };
    for (const subject of ask) api.registerSpamCheckerCallbacks(callbacks[subject]);
  },
});
