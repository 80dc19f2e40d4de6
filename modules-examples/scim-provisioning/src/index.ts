import { createHash, timingSafeEqual } from 'node:crypto';
import { Codes, defineModule, MatrixError, NOT_SPAM, type WebRequestContext } from '@rookery/module-api';
import { parseConfig } from './config.js';
import { People } from './people.js';
import {
  attributesOf,
  errorAnswer,
  filterOf,
  listToWire,
  patched,
  providerConfig,
  resourceTypes,
  type ScimList,
  schemas,
  ScimError,
  scimJson,
  type User,
  userToWire,
} from './protocol.js';

const path = '/_synapse/client/scim/v2';
const mostResults = 200;

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/** Has a directory make accounts, rename, lock and close them. */
export default defineModule({
  name: 'scim-provisioning',
  parseConfig,
  register(api, { token, authProvider, adopt }) {
    const people = new People(api, { authProvider, adopt });
    const base = api.urlOf(path);
    const expected = digest(token);

    api.registerAccountValidityCallbacks({
      isUserExpired: async (userId) => ((await people.isActive(userId)) ? undefined : true),
    });
    api.registerSpamCheckerCallbacks({
      checkLoginForSpam: async (userId) =>
        (await people.isActive(userId))
          ? NOT_SPAM
          : { errcode: Codes.FORBIDDEN, message: 'This account is switched off in the directory' },
    });

    /** A path for whoever has the token. */
    const serve = (
      below: string,
      answer: (request: Request, context: WebRequestContext) => Promise<Response> | Response,
    ): void =>
      api.registerWebResource(path + below, async (request, context) => {
        try {
          const [, given = ''] = /^Bearer (.+)$/i.exec(request.headers.get('authorization') ?? '') ?? [];
          if (!timingSafeEqual(digest(given), expected)) throw new ScimError(401, 'The token is missing or wrong');
          return await answer(request, context);
        } catch (error) {
          if (error instanceof ScimError) return errorAnswer(error);
          // What the server refuses, as to close an account that is held.
          if (MatrixError.is(error)) return errorAnswer(new ScimError(error.status, error.message));
          throw error;
        }
      });
    const bodyOf = async (request: Request): Promise<unknown> => {
      try {
        return await request.json();
      } catch {
        throw new ScimError(400, 'The body is no JSON', 'invalidSyntax');
      }
    };
    const wire = (status: number, user: User): Response => {
      const body = userToWire(user, base);
      return scimJson(status, body, { location: `${base}/Users/${user.id}` });
    };

    serve('/Users', async (request) => {
      if (request.method === 'POST') {
        const user = await people.add(attributesOf(await bodyOf(request)));
        api.log.info('Account made by the directory', { userId: user.userId });
        return wire(201, user);
      }
      if (request.method !== 'GET') throw new ScimError(405, 'This is not possible');
      const query = new URL(request.url).searchParams;
      const filter = filterOf(query.get('filter'));
      if (filter) {
        const { attribute, value } = filter;
        const by = { userName: 'byName', externalId: 'byExternalId', id: 'byId' } as const;
        const one = await people[by[attribute]](value);
        return scimJson(200, listToWire(one ? [userToWire(one, base)] : [], one ? 1 : 0, 1));
      }
      const startIndex = Math.max(1, Math.trunc(Number(query.get('startIndex') ?? 1)) || 1);
      const count = Math.min(mostResults, Math.max(0, Math.trunc(Number(query.get('count') ?? mostResults)) || 0));
      const { found, total } = await people.list(startIndex - 1, count);
      const resources = found.map((user) => userToWire(user, base));
      return scimJson(200, listToWire(resources, total, startIndex));
    });

    serve('/Users/:id', async (request, { params }) => {
      const user = await people.byId(params['id'] ?? '');
      if (!user) throw new ScimError(404, 'There is no such user');
      switch (request.method) {
        case 'GET':
          return wire(200, user);
        case 'PUT': {
          const body = await bodyOf(request);
          // Nobody who is switched off comes back by a request that does not speak of it.
          return wire(200, await people.change(user.id, (now) => attributesOf(body, now.active)));
        }
        case 'PATCH': {
          const body = await bodyOf(request);
          return wire(200, await people.change(user.id, (now) => patched(now, body)));
        }
        case 'DELETE':
          await people.remove(user);
          api.log.info('Account closed by the directory', { userId: user.userId });
          return new Response(null, { status: 204 });
        default:
          throw new ScimError(405, 'This is not possible');
      }
    });

    const one = ({ Resources }: ScimList, id: string | undefined): Response => {
      const found = Resources.find((resource) => 'id' in resource && resource.id === id);
      if (!found) throw new ScimError(404, 'There is nothing of this name');
      return scimJson(200, found);
    };
    serve('/ServiceProviderConfig', () => scimJson(200, providerConfig));
    serve('/ResourceTypes', () => scimJson(200, resourceTypes(base)));
    serve('/ResourceTypes/:id', (_, { params }) => one(resourceTypes(base), params['id']));
    serve('/Schemas', () => scimJson(200, schemas));
    serve('/Schemas/:id', (_, { params }) => one(schemas, params['id']));
    // Directories ask for groups before they say anything of them.
    serve('/Groups', ({ method }) => {
      if (method !== 'GET') throw new ScimError(501, 'Groups are not kept here');
      return scimJson(200, listToWire([], 0, 1));
    });
  },
});
