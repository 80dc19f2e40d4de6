import { Controller, Post } from '@nestjs/common';
import { Access, type Infer, json, JsonBody, stable, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { UserDirectory } from './user-directory.service.js';

const maxLimit = 50;
const defaultLimit = 10;

const schema = json.object({
  search_term: json.required('What the id or display name of a user has in it.', json.string({ maxLength: 1_000 })),
  limit: json.optional('How many users at most.', json.integer({ minimum: 0 })),
});

@Controller()
export class UserDirectoryController {
  constructor(private readonly directory: UserDirectory) {}

  /** POST /_matrix/client/v3/user_directory/search */
  @Post(stable('/user_directory/search'))
  @Access({ auth: 'required', largeAnswer: true })
  async search(@Who() requester: Requester, @JsonBody(schema) body: Infer<typeof schema>): Promise<object> {
    const limit = Math.min(body.limit ?? defaultLimit, maxLimit);
    const { users, limited } = await this.directory.search(requester, body.search_term, limit);
    return {
      limited,
      results: users.map(({ userId, displayName, avatarUrl }) => ({
        user_id: userId,
        // Clients in use look for both.
        display_name: displayName ?? null,
        avatar_url: avatarUrl ?? null,
      })),
    };
  }
}
