import { defineModule } from '@rookery/module-api';
import { keepProfile, passportProvider, profileOf } from '@rookery/passport';
import { Strategy as GitHubStrategy } from 'passport-github2';
import { parseConfig } from './config.js';

/** Lets people sign in with GitHub, at as many instances as the settings name. */
export default defineModule({
  name: 'github-login',
  parseConfig,
  register(api, instances) {
    for (const { id, name, clientId, clientSecret, baseUrl, allowExistingUsers } of instances) {
      const isPublic = baseUrl === 'https://github.com';
      const apiUrl = isPublic ? 'https://api.github.com' : `${baseUrl}/api/v3`;
      api.registerIdentityProvider(
        passportProvider({
          id,
          name,
          brand: 'github',
          strategy: ({ callbackUrl }) =>
            new GitHubStrategy(
              {
                clientID: clientId,
                clientSecret,
                callbackURL: callbackUrl,
                authorizationURL: `${baseUrl}/login/oauth/authorize`,
                tokenURL: `${baseUrl}/login/oauth/access_token`,
                userProfileURL: `${apiUrl}/user`,
                userEmailURL: `${apiUrl}/user/emails`,
                // Kept in the browser, sealed: nobody can make somebody else come back here with their own answer.
                state: true,
                scope: ['read:user', 'user:email'],
                allRawEmails: true,
              },
              keepProfile,
            ),
          profile(person, failures) {
            const profile = profileOf(person, failures);
            return { ...profile, existingLocalpart: allowExistingUsers ? profileOf(person, 0).localpart : undefined };
          },
        }),
      );
    }
  },
});
