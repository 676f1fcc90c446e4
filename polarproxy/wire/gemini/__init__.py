"""Google's Gemini API: generateContent, streamGenerateContent, countTokens and models."""
