import { defineModule } from '@rookery/module-api';
import { passportProvider, type PassportStrategy, profileOf } from '@rookery/passport';
import { parseConfig } from './config.js';
import { findPerson, type Person } from './directory.js';

/** What Passport gives a strategy. */
interface Asked {
  success(user: Person): void;
  fail(challenge: string): void;
  error(error: unknown): void;
}

/** Lets people sign in with the name and password of a directory, which only this module's page sees. */
export default defineModule({
  name: 'ldap-login',
  parseConfig,
  register(api, directories) {
    for (const directory of directories) {
      const { id, name, allowExistingUsers } = directory;
      const strategy: PassportStrategy = {
        authenticate(this: Asked, { body }: { body: { username?: unknown; password?: unknown } }) {
          findPerson(directory, String(body.username ?? ''), String(body.password ?? '')).then(
            (person) => (person ? this.success(person) : this.fail('The name or the password is wrong.')),
            (error: unknown) => this.error(error),
          );
        },
      };
      api.registerIdentityProvider(
        passportProvider<Person>({
          id,
          name,
          form: { title: name },
          strategy: () => strategy,
          identify: ({ id: remoteId, ...claims }) => ({ remoteId, claims }),
          profile: (person, failures) => ({
            ...profileOf(person, failures),
            existingLocalpart: allowExistingUsers ? profileOf(person, 0).localpart : undefined,
            confirmLocalpart: false,
            // The directory is the operator's own.
            emails: person.claims['mails'] as readonly string[],
          }),
        }),
      );
    }
  },
});
